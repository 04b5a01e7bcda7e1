//! Server-side apply: fields have owners.

use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::fixture::{admin, code, merge, refused, server, widgets};

fn by(owner: &str) -> PatchParams {
    PatchParams::apply(owner)
}

fn wanted(metadata: &Value, spec: &Value) -> Patch<Value> {
    Patch::Apply(json!({"apiVersion": "test.dev/v1", "kind": "Widget", "metadata": metadata,
        "spec": spec}))
}

fn spec(widget: &DynamicObject) -> &Value {
    &widget.data["spec"]
}

#[tokio::test(start_paused = true)]
async fn what_an_owner_applies_no_more_goes_and_what_others_own_stays() {
    let widgets = widgets(&admin(&server()));
    let red = json!({"colour": "red", "replicas": 4});
    let labels = json!({"labels": {"mine": "1"}});
    widgets.patch("a", &by("one"), &wanted(&labels, &red)).await.unwrap();
    let theirs = json!({"metadata": {"labels": {"theirs": "1"}}});
    widgets.patch("a", &PatchParams::default(), &merge(&theirs)).await.unwrap();
    let less = wanted(&json!({}), &json!({"colour": "red"}));
    let after = widgets.patch("a", &by("one"), &less).await.unwrap();
    assert_eq!(spec(&after), &json!({"colour": "red", "replicas": 2}), "the default is back");
    assert_eq!(json!(after.metadata.labels), json!({"theirs": "1"}));
}

#[tokio::test(start_paused = true)]
async fn another_owners_field_is_a_conflict_unless_it_is_forced_or_the_same() {
    let widgets = widgets(&admin(&server()));
    let apply = |colour: &str| wanted(&json!({}), &json!({"colour": colour}));
    widgets.patch("a", &by("one"), &apply("red")).await.unwrap();
    widgets.patch("a", &by("two"), &apply("red")).await.expect("both want the same");
    let other = widgets.patch("a", &by("three"), &apply("blue")).await;
    assert_eq!(refused(other), code(409, "Conflict"));
    let forced = widgets.patch("a", &by("three").force(), &apply("blue")).await.unwrap();
    assert_eq!(spec(&forced)["colour"], "blue");
    let back = widgets.patch("a", &by("one"), &apply("red")).await;
    assert_eq!(refused(back), code(409, "Conflict"), "it has another owner now");
}

#[tokio::test(start_paused = true)]
async fn a_plain_write_takes_the_fields_that_it_changes() {
    let widgets = widgets(&admin(&server()));
    let four = json!({"colour": "red", "replicas": 4});
    widgets.patch("a", &by("one"), &wanted(&json!({}), &four)).await.unwrap();
    let scaled = json!({"spec": {"replicas": 7}});
    widgets.patch("a", &PatchParams::default(), &merge(&scaled)).await.unwrap();
    let again = widgets.patch("a", &by("one"), &wanted(&json!({}), &four)).await;
    assert_eq!(refused(again), code(409, "Conflict"));
    let without = wanted(&json!({}), &json!({"colour": "red"}));
    let after = widgets.patch("a", &by("one"), &without).await.unwrap();
    assert_eq!(spec(&after)["replicas"], 7, "it belongs to who scaled");
}

#[tokio::test(start_paused = true)]
async fn to_own_a_field_too_is_a_write_and_to_own_it_still_is_none() {
    let widgets = widgets(&admin(&server()));
    let apply = async |owner: &str| {
        let red = wanted(&json!({}), &json!({"colour": "red"}));
        widgets.patch("a", &by(owner), &red).await.unwrap().metadata.resource_version
    };
    let first = apply("one").await;
    assert_eq!(apply("one").await, first);
    let second = apply("two").await;
    assert_ne!(second, first);
    assert_eq!(apply("two").await, second);
    assert_eq!(apply("one").await, second);
}
