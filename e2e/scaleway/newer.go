//go:build newer

package main

import (
	"time"

	apple "github.com/scaleway/scaleway-sdk-go/api/applesilicon/v1alpha1"
	"github.com/scaleway/scaleway-sdk-go/scw"
)

// What the older SDK does not have.
var newerChecks = []struct {
	name string
	run  func(*world)
}{
	{"batch", batch},
	{"commitment", commitment},
}

func batch(w *world) {
	request := &apple.BatchCreateServersRequest{Zone: zone, Type: "M4-M"}
	for _, name := range []string{"one", "two"} {
		inner := &apple.BatchCreateServersRequestBatchInnerCreateServerRequest{Name: name}
		request.Requests = append(request.Requests, inner)
	}
	lever("POST", "stock", map[string]any{"zone": zone, "type": "M4-M", "left": 1})
	_, err := w.apple.BatchCreateServers(request)
	typed[*scw.OutOfStockError](err)
	check(must(w.apple.ListServers(&apple.ListServersRequest{Zone: zone})).TotalCount == 0, "all or none")
	lever("POST", "stock", map[string]any{"zone": zone, "type": "M4-M", "left": 100})
	made := must(w.apple.BatchCreateServers(request)).Servers
	check(len(made) == 2 && made[1].Name == "two" && isSealed(made[0]), "%+v", made)
	for _, server := range made {
		w.drop(server.ID)
	}
}

func commitment(w *world) {
	id := order("box", 48*time.Hour)
	check(w.get(id).Commitment.Type == apple.CommitmentTypeDuration24h, "%+v", w.get(id).Commitment)
	commit := func(kind apple.CommitmentType) *apple.Server {
		value := &apple.CommitmentTypeValue{CommitmentType: kind}
		request := &apple.UpdateServerRequest{Zone: zone, ServerID: id, CommitmentType: value}
		return must(w.apple.UpdateServer(request))
	}
	monthly := commit(apple.CommitmentTypeRenewedMonthly)
	month := monthly.UpdatedAt.AddDate(0, 1, 0)
	check(monthly.DeletableAt.Equal(month), "deletable %v, not %v", monthly.DeletableAt, month)
	typed[*scw.PreconditionFailedError](w.apple.DeleteServer(&apple.DeleteServerRequest{Zone: zone, ServerID: id}))
	check(commit(apple.CommitmentTypeNone).Commitment.Cancelled, "not cancelled")
	w.drop(id)
}
