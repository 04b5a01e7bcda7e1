// Drives a simulated Scaleway with Scaleway's own SDK: every operation, pages, sealing, each typed
// error, a wrong key, a wrong project. It needs the environment that `applecart sim scaleway` prints,
// an account without hosts, and the levers under /sim/.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"time"

	apple "github.com/scaleway/scaleway-sdk-go/api/applesilicon/v1alpha1"
	iam "github.com/scaleway/scaleway-sdk-go/api/iam/v1alpha1"
	"github.com/scaleway/scaleway-sdk-go/scw"
)

const (
	zone   = scw.ZoneFrPar1
	sealed = "<sealed>"
	other  = "11111111-1111-4111-8111-111111111111"
)

// world is what every check gets.
type world struct {
	apple   *apple.API
	iam     *iam.API
	project string
}

// failed is how a check says what is wrong.
type failed string

func main() {
	checks := []struct {
		name string
		run  func(*world)
	}{
		{"server types", serverTypes},
		{"operating systems", operatingSystems},
		{"create, sealed until a get", create},
		{"pages", pages},
		{"update", update},
		{"reboot", reboot},
		{"reinstall", reinstall},
		{"delete inside and after the floor", remove},
		{"scheduled deletion", scheduledDeletion},
		{"refusals", refusals},
		{"every typed error", typedErrors},
		{"every other error", otherErrors},
		{"wrong key, wrong project", wrongKeyAndProject},
		{"lost answers", lostAnswers},
		{"SSH keys", sshKeys},
		{"headers", headers},
	}
	checks = append(checks, newerChecks...)
	client, err := scw.NewClient(scw.WithEnv())
	if err != nil {
		fmt.Println("FAIL: no client:", err)
		os.Exit(1)
	}
	project, _ := client.GetDefaultProjectID()
	w := &world{apple.NewAPI(client), iam.NewAPI(client), project}
	passed := 0
	for _, check := range checks {
		func() {
			defer func() {
				// Anything but a pass ends the program: a check that crashed has not passed.
				if problem := recover(); problem != nil {
					fmt.Printf("FAIL %s: %v\n", check.name, problem)
					os.Exit(1)
				}
			}()
			check.run(w)
			lever("DELETE", "rules", nil)
			fmt.Println("ok", check.name)
			passed++
		}()
	}
	fmt.Printf("%d of %d checks passed with %s\n", passed, len(checks), sdk())
}

// sdk is the version that this was built with.
func sdk() string {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if strings.HasSuffix(module.Path, "/scaleway-sdk-go") {
			return module.Version
		}
	}
	return "no SDK"
}

// must stops the check at an error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(failed(fmt.Sprintf("%T %v", err, err)))
	}
	return value
}

func check(holds bool, format string, args ...any) {
	if !holds {
		panic(failed(fmt.Sprintf(format, args...)))
	}
}

// typed is the error as the SDK's own type, or the end of the check.
func typed[T error](err error) T {
	var want T
	check(errors.As(err, &want), "got %T %v, want %T", err, err, want)
	return want
}

// lever does something to the simulated world behind the API's back.
func lever(method, path string, body any) map[string]any {
	text := must(json.Marshal(body))
	url := os.Getenv("SCW_API_URL") + "/sim/" + path
	response := must(http.DefaultClient.Do(must(http.NewRequest(method, url, bytes.NewReader(text)))))
	defer response.Body.Close()
	answer := must(io.ReadAll(response.Body))
	check(response.StatusCode == 200, "%s %s: %s", method, path, answer)
	var decoded map[string]any
	must(0, json.Unmarshal(answer, &decoded))
	return decoded
}

func advance(duration time.Duration) {
	lever("POST", "clock", map[string]any{"advance_seconds": int(duration.Seconds())})
}

// order puts a host into the account and tells its id.
func order(name string, age time.Duration) string {
	body := map[string]any{"name": name, "ordered_seconds_ago": int(age.Seconds())}
	return lever("POST", "hosts", body)["id"].(string)
}

func rule(operation string, effect any) {
	lever("POST", "rules", map[string]any{"operation": operation, "effect": effect})
}

func (w *world) get(id string) *apple.Server {
	return must(w.apple.GetServer(&apple.GetServerRequest{Zone: zone, ServerID: id}))
}

func (w *world) rename(id, name string) (*apple.Server, error) {
	return w.apple.UpdateServer(&apple.UpdateServerRequest{Zone: zone, ServerID: id, Name: &name})
}

func (w *world) drop(id string) {
	lever("DELETE", "hosts/"+id, nil)
}

func isSealed(server *apple.Server) bool {
	return server.SudoPassword == sealed && server.VncURL == sealed
}

func serverTypes(w *world) {
	types := must(w.apple.ListServerTypes(&apple.ListServerTypesRequest{Zone: zone})).ServerTypes
	check(len(types) >= 7, "%d types", len(types))
	one := must(w.apple.GetServerType(&apple.GetServerTypeRequest{Zone: zone, ServerType: "M4-M"}))
	check(one.Stock == apple.ServerTypeStockHighStock, "stock %s", one.Stock)
	check(one.MinimumLeaseDuration.Seconds == 86400, "lease %v", one.MinimumLeaseDuration)
	check(one.Memory.Capacity == 32*scw.GB && one.CPU.CoreCount == 10, "%+v", one)
	check(one.DefaultOs.Family == "Sequoia", "default %s", one.DefaultOs.Family)
	lever("POST", "stock", map[string]any{"zone": zone, "type": "M4-M", "left": 0})
	one = must(w.apple.GetServerType(&apple.GetServerTypeRequest{Zone: zone, ServerType: "M4-M"}))
	check(one.Stock == apple.ServerTypeStockNoStock, "stock %s", one.Stock)
	_, err := w.apple.CreateServer(&apple.CreateServerRequest{Zone: zone, Name: "x", Type: "M4-M"})
	typed[*scw.OutOfStockError](err)
	lever("POST", "stock", map[string]any{"zone": zone, "type": "M4-M", "left": 100})
	_, err = w.apple.GetServerType(&apple.GetServerTypeRequest{Zone: zone, ServerType: "M9"})
	check(typed[*scw.ResourceNotFoundError](err).ResourceID == "M9", "%v", err)
}

func operatingSystems(w *world) {
	all := must(w.apple.ListOS(&apple.ListOSRequest{Zone: zone}, scw.WithAllPages()))
	check(int(all.TotalCount) == len(all.Os) && len(all.Os) == 4, "%d of %d", len(all.Os), all.TotalCount)
	forType := must(w.apple.ListOS(&apple.ListOSRequest{Zone: zone, ServerType: scw.StringPtr("M4-M")}))
	check(len(forType.Os) == 3, "%d for M4-M", len(forType.Os))
	named := must(w.apple.ListOS(&apple.ListOSRequest{Zone: zone, Name: scw.StringPtr("macos-tahoe")}))
	check(len(named.Os) == 1 && named.Os[0].Version == "26.0", "%+v", named.Os)
	one := must(w.apple.GetOS(&apple.GetOSRequest{Zone: zone, OsID: named.Os[0].ID}))
	check(one.Label == "macOS Tahoe 26.0" && one.XcodeVersion == "26", "%+v", one)
	_, err := w.apple.GetOS(&apple.GetOSRequest{Zone: zone, OsID: other})
	check(typed[*scw.ResourceNotFoundError](err).Resource == "os", "%v", err)
}

func create(w *world) {
	made := must(w.apple.CreateServer(&apple.CreateServerRequest{Zone: zone, Name: "Box", Type: "M4-M"}))
	check(made.Status == apple.ServerStatusStarting && !made.Delivered, "%s", made.Status)
	check(isSealed(made), "not sealed: %q %q", made.SudoPassword, made.VncURL)
	check(made.ProjectID == w.project && made.Zone == zone && made.IP.String() != "", "%+v", made)
	check(made.DeletableAt.Sub(*made.CreatedAt) == 24*time.Hour, "floor %v", made.DeletableAt)
	check(made.SSHUsername == "m1" && made.VncPort == 59010, "%q %d", made.SSHUsername, made.VncPort)
	seen := w.get(made.ID)
	url := fmt.Sprintf("vnc://m1:%s@%s:59010", seen.SudoPassword, seen.IP)
	check(len(seen.SudoPassword) == 12 && seen.VncURL == url, "%q %q", seen.SudoPassword, seen.VncURL)
	check(seen.Os.Family == "Sequoia" && seen.VpcStatus == "vpc_disabled", "%+v", seen)
	list := must(w.apple.ListServers(&apple.ListServersRequest{Zone: zone}))
	check(list.TotalCount == 1 && isSealed(list.Servers[0]), "%+v", list)
	advance(140 * time.Second)
	pause := time.Millisecond
	wait := &apple.WaitForServerRequest{Zone: zone, ServerID: made.ID, RetryInterval: &pause}
	ready := must(w.apple.WaitForServer(wait))
	check(ready.Status == apple.ServerStatusReady && ready.Delivered, "%s", ready.Status)
	check(ready.UpdatedAt.After(*made.UpdatedAt), "updated %v", ready.UpdatedAt)
	w.drop(made.ID)
}

func pages(w *world) {
	var ids []string
	for n := range 65 {
		ids = append(ids, order(fmt.Sprintf("tuist-pool-%d", n), 0))
	}
	request := func() *apple.ListServersRequest { return &apple.ListServersRequest{Zone: zone} }
	first := must(w.apple.ListServers(request()))
	check(first.TotalCount == 65, "%d in all", first.TotalCount)
	size := lever("GET", "state", nil)["unsure"].(map[string]any)["default_page_size"]
	check(fmt.Sprint(len(first.Servers)) == size, "%d on a page of %s", len(first.Servers), size)
	all := must(w.apple.ListServers(request(), scw.WithAllPages()))
	check(all.TotalCount == 65 && len(all.Servers) == 65, "%d of %d", len(all.Servers), all.TotalCount)
	for n, id := range ids {
		check(all.Servers[n].ID == id, "out of order at %d", n)
	}
	large := request()
	large.PageSize = scw.Uint32Ptr(1000)
	check(len(must(w.apple.ListServers(large)).Servers) == 65, "a page that is too large is cut")
	fourth := request()
	fourth.Page, fourth.PageSize = scw.Int32Ptr(4), scw.Uint32Ptr(20)
	check(len(must(w.apple.ListServers(fourth)).Servers) == 5, "the fourth page")
	fourth.Page = scw.Int32Ptr(9)
	check(len(must(w.apple.ListServers(fourth)).Servers) == 0, "a page after the last")
	newest := request()
	newest.OrderBy = apple.ListServersRequestOrderByCreatedAtDesc
	check(must(w.apple.ListServers(newest)).Servers[0].ID == ids[64], "newest first")
	none := &apple.ListServersRequest{Zone: scw.ZoneFrPar2}
	check(must(w.apple.ListServers(none)).TotalCount == 0, "another zone is empty")
	for _, id := range ids {
		w.drop(id)
	}
}

func update(w *world) {
	id := order("tuist-pool-1", 0)
	before := w.get(id)
	renamed := must(w.rename(id, "another name, with spaces & <signs>"))
	check(renamed.Name == "another name, with spaces & <signs>", "%q", renamed.Name)
	check(isSealed(renamed) && renamed.Status == apple.ServerStatusReady, "%+v", renamed)
	must(w.rename(id, "the last one wins"))
	check(w.get(id).Name == "the last one wins", "%q", w.get(id).Name)
	advance(time.Second)
	touched := must(w.apple.UpdateServer(&apple.UpdateServerRequest{Zone: zone, ServerID: id}))
	check(touched.UpdatedAt.After(*before.UpdatedAt), "an empty update counts")
	on := &apple.UpdateServerRequest{Zone: zone, ServerID: id, EnableVpc: scw.BoolPtr(true)}
	check(must(w.apple.UpdateServer(on)).VpcStatus == "vpc_updating", "vpc")
	advance(time.Minute)
	check(w.get(id).VpcStatus == "vpc_enabled", "vpc %s", w.get(id).VpcStatus)
	w.drop(id)
}

func reboot(w *world) {
	id := order("box", 0)
	request := &apple.RebootServerRequest{Zone: zone, ServerID: id}
	check(must(w.apple.RebootServer(request)).Status == apple.ServerStatusRebooting, "not rebooting")
	_, err := w.apple.RebootServer(request)
	busy := typed[*scw.TransientStateError](err)
	check(busy.Resource == "server" && busy.ResourceID == id && busy.CurrentState == "rebooting", "%+v", busy)
	advance(105 * time.Second)
	check(w.get(id).Status == apple.ServerStatusReady, "%s", w.get(id).Status)
	w.drop(id)
}

func reinstall(w *world) {
	id := order("box", 0)
	password := w.get(id).SudoPassword
	wiped := must(w.apple.ReinstallServer(&apple.ReinstallServerRequest{Zone: zone, ServerID: id}))
	check(wiped.Status == apple.ServerStatusReinstalling && wiped.Delivered && isSealed(wiped), "%+v", wiped)
	_, err := w.apple.ReinstallServer(&apple.ReinstallServerRequest{Zone: zone, ServerID: id})
	check(typed[*scw.TransientStateError](err).CurrentState == "reinstalling", "%v", err)
	advance(20 * time.Minute)
	after := w.get(id)
	check(after.Status == apple.ServerStatusReady && after.SudoPassword != password, "%+v", after.Status)
	linux := must(w.apple.ListOS(&apple.ListOSRequest{Zone: zone, Name: scw.StringPtr("fedora")})).Os[0].ID
	_, err = w.apple.ReinstallServer(&apple.ReinstallServerRequest{Zone: zone, ServerID: id, OsID: &linux})
	check(typed[*scw.InvalidArgumentsError](err).Details[0].ArgumentName == "os_id", "%v", err)
	w.drop(id)
}

func remove(w *world) {
	id := order("box", time.Hour)
	request := &apple.DeleteServerRequest{Zone: zone, ServerID: id}
	early := typed[*scw.PreconditionFailedError](w.apple.DeleteServer(request))
	date := w.get(id).DeletableAt.UTC().Format("2006-01-02 15:04:05.999999999 -0700 MST")
	check(early.HelpMessage == "this server cannot be deleted before "+date, "%q %s", early.HelpMessage, date)
	check(early.Precondition == "unknown_precondition", "%q", early.Precondition)
	advance(23 * time.Hour)
	must(0, w.apple.DeleteServer(request))
	_, err := w.apple.GetServer(&apple.GetServerRequest{Zone: zone, ServerID: id})
	denied := typed[*scw.PermissionsDeniedError](err).Details
	check(denied[0].Action == "read" && denied[0].Resource == "server", "%+v", denied)
	typed[*scw.PermissionsDeniedError](w.apple.DeleteServer(request))
}

func scheduledDeletion(w *world) {
	id := order("box", time.Hour)
	schedule := func(yes bool) *apple.Server {
		request := &apple.UpdateServerRequest{Zone: zone, ServerID: id, ScheduleDeletion: &yes}
		return must(w.apple.UpdateServer(request))
	}
	check(schedule(true).DeletionScheduled, "not scheduled")
	check(!schedule(false).DeletionScheduled, "not cancelled")
	advance(24 * time.Hour)
	check(w.get(id).ID == id, "a cancelled deletion came")
	check(schedule(true).DeletionScheduled, "not scheduled")
	advance(time.Second)
	_, err := w.apple.GetServer(&apple.GetServerRequest{Zone: zone, ServerID: id})
	typed[*scw.PermissionsDeniedError](err)
}

func refusals(w *world) {
	_, err := w.apple.GetServer(&apple.GetServerRequest{Zone: zone, ServerID: other})
	missing := typed[*scw.ResourceNotFoundError](err)
	check(missing.Resource == "server" && missing.ResourceID == other, "%+v", missing)
	_, err = w.apple.CreateServer(&apple.CreateServerRequest{Zone: zone, Name: "x", Type: "M1-M"})
	check(typed[*scw.InvalidArgumentsError](err).Details[0].ArgumentName == "type", "%v", err)
	id := order("box", 0)
	lever("PATCH", "hosts/"+id, map[string]any{"status": "locked"})
	check(w.get(id).Status == apple.ServerStatusLocked, "%s", w.get(id).Status)
	_, err = w.apple.RebootServer(&apple.RebootServerRequest{Zone: zone, ServerID: id})
	check(typed[*scw.ResourceLockedError](err).ResourceID == id, "%v", err)
	w.drop(id)
}

func typedErrors(w *world) {
	id := order("box", 0)
	after := func(kind string) error {
		rule("update_server", map[string]any{"error": kind})
		_, err := w.rename(id, "new")
		return err
	}
	check(len(typed[*scw.InvalidArgumentsError](after("invalid_arguments")).Details) == 1, "details")
	denied := typed[*scw.DeniedAuthenticationError](after("denied_authentication"))
	check(denied.Method == "api_key" && denied.Reason == "expired", "%+v", denied)
	check(len(typed[*scw.PermissionsDeniedError](after("permissions_denied")).Details) == 1, "details")
	quota := typed[*scw.QuotasExceededError](after("quotas_exceeded")).Details[0]
	check(quota.Quota == 2 && quota.Current == 2, "%+v", quota)
	check(typed[*scw.ResourceNotFoundError](after("not_found")).Resource == "server", "resource")
	check(typed[*scw.TransientStateError](after("transient_state")).CurrentState == "starting", "state")
	check(!typed[*scw.ResourceExpiredError](after("resource_expired")).ExpiredSince.IsZero(), "since")
	check(typed[*scw.PreconditionFailedError](after("precondition_failed")).HelpMessage != "", "help")
	check(typed[*scw.ResourceLockedError](after("locked")).Resource == "server", "resource")
	check(typed[*scw.OutOfStockError](after("out_of_stock")).Resource == "server", "resource")
	check(w.get(id).Name == "box", "a refused rename happened")
	w.drop(id)
}

func otherErrors(w *world) {
	id := order("box", 0)
	for _, row := range []struct {
		effect any
		status int
		kind   string
	}{
		{map[string]any{"error": "too_many_requests"}, 429, "too_many_requests"},
		{map[string]any{"error": "already_exists"}, 409, "already_exists"},
		{map[string]any{"error": "expired"}, 410, "expired"},
		{map[string]any{"error": "conflict"}, 409, "conflict"},
		{map[string]any{"html": 502}, 502, ""},
		{map[string]any{"html": 429}, 429, ""},
		{map[string]any{"html": 412}, 412, ""},
		{map[string]any{"empty": 500}, 500, ""},
	} {
		rule("update_server", row.effect)
		_, err := w.rename(id, "new")
		got := typed[*scw.ResponseError](err)
		check(got.StatusCode == row.status && got.Type == row.kind, "%v: %+v", row.effect, got)
	}
	w.drop(id)
}

func wrongKeyAndProject(w *world) {
	id := order("box", 0)
	wrong := must(scw.NewClient(scw.WithEnv(), scw.WithAuth("SCWXXXXXXXXXXXXXXXXX", other)))
	_, err := apple.NewAPI(wrong).ListServers(&apple.ListServersRequest{Zone: zone})
	check(typed[*scw.DeniedAuthenticationError](err).Method == "api_key", "%v", err)
	_, err = iam.NewAPI(wrong).ListSSHKeys(&iam.ListSSHKeysRequest{})
	typed[*scw.DeniedAuthenticationError](err)
	list := &apple.ListServersRequest{Zone: zone, ProjectID: scw.StringPtr(other)}
	_, err = w.apple.ListServers(list)
	check(typed[*scw.PermissionsDeniedError](err).Details[0].Action == "read", "%v", err)
	order := &apple.CreateServerRequest{Zone: zone, Name: "x", Type: "M4-M", ProjectID: other}
	_, err = w.apple.CreateServer(order)
	check(typed[*scw.PermissionsDeniedError](err).Details[0].Action == "write", "%v", err)
	theirs := lever("POST", "hosts", map[string]any{"name": "theirs", "project": other})["id"].(string)
	_, err = w.apple.GetServer(&apple.GetServerRequest{Zone: zone, ServerID: theirs})
	typed[*scw.PermissionsDeniedError](err)
	all := must(w.apple.ListServers(&apple.ListServersRequest{Zone: zone}, scw.WithAllPages()))
	check(all.TotalCount == 1 && all.Servers[0].ID == id, "%d servers", all.TotalCount)
	w.drop(id)
	w.drop(theirs)
}

func lostAnswers(w *world) {
	id := order("old", 0)
	for _, row := range []struct{ effect, name string }{{"lose_request", "old"}, {"lose_answer", "new"}} {
		rule("update_server", row.effect)
		_, err := w.rename(id, "new")
		check(err != nil && !errors.As(err, new(*scw.ResponseError)), "%T %v", err, err)
		check(w.get(id).Name == row.name, "%s: the name is %q", row.effect, w.get(id).Name)
	}
	w.drop(id)
}

func sshKeys(w *world) {
	const material = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
	request := &iam.CreateSSHKeyRequest{Name: "fleet", PublicKey: material + " me@home"}
	made := must(w.iam.CreateSSHKey(request))
	check(made.PublicKey == material && made.ProjectID == w.project, "%q", made.PublicKey)
	check(made.Fingerprint == "256 MD5:0f:a2:0a:d7:38:3e:65:45:08:6b:63:84:1c:ff:dc:ba (ssh-ed25519)", "%q", made.Fingerprint)
	_, err := w.iam.CreateSSHKey(request)
	twice := typed[*scw.ResponseError](err)
	check(twice.StatusCode == 409 && twice.Type == "already_exists", "%+v", twice)
	list := func(name string) []*iam.SSHKey {
		request := &iam.ListSSHKeysRequest{Name: &name, ProjectID: &w.project}
		return must(w.iam.ListSSHKeys(request, scw.WithAllPages())).SSHKeys
	}
	check(len(list("fleet")) == 1 && len(list("nobody")) == 0, "listed by name")
	check(must(w.iam.GetSSHKey(&iam.GetSSHKeyRequest{SSHKeyID: made.ID})).Name == "fleet", "get")
	off := &iam.UpdateSSHKeyRequest{SSHKeyID: made.ID, Disabled: scw.BoolPtr(true)}
	check(must(w.iam.UpdateSSHKey(off)).Disabled, "not disabled")
	check(len(list("fleet")) == 0, "a disabled key is listed")
	_, err = w.iam.CreateSSHKey(&iam.CreateSSHKeyRequest{Name: "x", PublicKey: "tulip"})
	check(typed[*scw.InvalidArgumentsError](err).Details[0].ArgumentName == "public_key", "%v", err)
	must(0, w.iam.DeleteSSHKey(&iam.DeleteSSHKeyRequest{SSHKeyID: made.ID}))
	_, err = w.iam.GetSSHKey(&iam.GetSSHKeyRequest{SSHKeyID: made.ID})
	check(typed[*scw.ResourceNotFoundError](err).Resource == "ssh_key", "%v", err)
}

// headers looks at what the SDK does not show: without a Content-Length the older one sees nothing.
func headers(w *world) {
	id := order("box", 48*time.Hour)
	base := os.Getenv("SCW_API_URL") + "/apple-silicon/v1alpha1/zones/fr-par-1/servers"
	for _, row := range []struct {
		method, url string
		status      int
	}{{"GET", base, 200}, {"GET", base + "/" + id, 200}, {"PATCH", base + "/" + id, 200},
		{"GET", base + "/" + other, 404}, {"DELETE", base + "/" + id, 204}} {
		request := must(http.NewRequest(row.method, row.url, strings.NewReader("{}")))
		request.Header.Set("X-Auth-Token", os.Getenv("SCW_SECRET_KEY"))
		response := must(http.DefaultClient.Do(request))
		body := must(io.ReadAll(response.Body))
		must(0, response.Body.Close())
		check(response.StatusCode == row.status, "%s %s: %d", row.method, row.url, response.StatusCode)
		check(response.ContentLength == int64(len(body)), "%s: length %d", row.url, response.ContentLength)
		check(response.Header.Get("Content-Type") == "application/json", "%v", response.Header)
		check(response.Header.Get("X-Request-Id") != "", "%v", response.Header)
		check(row.method != "PATCH" || bytes.Contains(body, []byte(`"\u003csealed\u003e"`)), "%s", body)
	}
}
