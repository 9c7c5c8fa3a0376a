//! Conversations with the keeper: what it is told, and what it does.

use super::*;
use crate::api::watched;

const US: &str = "example.com/us";
const S: fn(u64) -> Time = Duration::from_secs;

fn target(name: &str) -> Target {
    Target { kind: watched("Service").unwrap().kind, key: Name::new("shop", name) }
}

/// A Service as we want it.
fn service(owner: &str, ports: &[u16], labels: Value) -> Value {
    let ports: Vec<Value> =
        ports.iter().map(|port| json!({ "port": port, "targetPort": 15_000 + port })).collect();
    let copied: Vec<&String> = labels.as_object().unwrap().keys().collect();
    json!({
        "metadata": {
            "namespace": "shop", "name": "weir-web", "labels": labels,
            "annotations": {
                CONTROLLER_ANNOTATION: US, COPIED_ANNOTATION: json!(copied).to_string(),
            },
            "ownerReferences": [{ "kind": "Gateway", "name": "web", "uid": owner }],
        },
        "spec": { "ports": ports, "externalTrafficPolicy": null },
    })
}

/// An object as the server stores it, with what it adds.
fn stored(mut value: Value, version: &str) -> Object {
    value["metadata"]["uid"] = json!("s1");
    value["metadata"]["resourceVersion"] = json!(version);
    for port in value["spec"]["ports"].as_array_mut().into_iter().flatten() {
        port["nodePort"] = json!(30_000 + port["port"].as_u64().unwrap());
    }
    value["spec"]["clusterIP"] = json!("10.0.0.1");
    Object::new(watched("Service").unwrap(), value).unwrap()
}

fn gateway(uid: &str, class: &str) -> Object {
    let metadata = json!({ "namespace": "shop", "name": "web", "uid": uid, "resourceVersion": "1" });
    let value = json!({ "metadata": metadata, "spec": { "gatewayClassName": class } });
    Object::new(watched("Gateway").unwrap(), value).unwrap()
}

fn wanted(owner: &str, object: Option<Value>) -> Event {
    Event::Want(Wanted {
        objects: object.into_iter().map(|object| (target("weir-web"), object)).collect(),
        gateways: [(Name::new("shop", "web"), owner.to_owned())].into(),
    })
}

/// A keeper and the store that its watches fill.
struct World {
    keeper: Keeper,
    store: Store,
}

impl World {
    fn leading() -> Self {
        let mut world = Self { keeper: Keeper::new(US, 1), store: Store::default() };
        assert_eq!(world.on(0, Event::Lead(true)), []);
        world
    }

    fn on(&mut self, at: u64, event: Event) -> Vec<Action> {
        self.keeper.on(S(at), &self.store, event)
    }

    /// The watch reports an object.
    fn seen(&mut self, at: u64, object: Object) -> Vec<Action> {
        self.store.put("Service", object.clone());
        self.on(at, Event::Seen(target(&object.key.name), Some(object)))
    }
}

fn patched(todo: &[Action]) -> (u64, &Value) {
    let [Action::Patch(number, _, patch)] = todo else { panic!("one patch, not {todo:?}") };
    (*number, patch)
}

#[test]
fn a_service_is_created_once_and_left_alone() {
    let mut world = World::leading();
    let body = service("u1", &[80], json!({}));
    let todo = world.on(1, wanted("u1", Some(body.clone())));
    assert_eq!(todo, [Action::Create(1, target("weir-web"), body.clone())]);
    assert_eq!(world.on(1, wanted("u1", Some(body.clone()))), [], "it is under way");
    let made = stored(body.clone(), "5");
    assert_eq!(world.on(2, Event::Wrote(1, Ok(made.clone()))), []);
    assert_eq!(world.on(2, Event::Tick), [], "the watch has not caught up, but the answer has said enough");
    assert_eq!(world.seen(3, made), []);
    assert_eq!(world.keeper.next(), Time::MAX);
}

#[test]
fn what_the_server_chose_stays() {
    let mut world = World::leading();
    world.on(1, wanted("u1", Some(service("u1", &[80], json!({})))));
    let made = stored(service("u1", &[80], json!({})), "5");
    world.on(2, Event::Wrote(1, Ok(made.clone())));
    world.seen(2, made);
    let todo = world.on(3, wanted("u1", Some(service("u1", &[80, 443], json!({})))));
    let expected = json!({
        "metadata": { "resourceVersion": "5" },
        "spec": { "ports": [
            { "port": 80, "targetPort": 15_080, "nodePort": 30_080 }, { "port": 443, "targetPort": 15_443 },
        ] },
    });
    assert_eq!(patched(&todo).1, &expected);
}

#[test]
fn labels_that_are_no_longer_asked_for_go_and_those_of_others_stay() {
    let mut world = World::leading();
    world.on(1, wanted("u1", Some(service("u1", &[80], json!({ "team": "a" })))));
    let mut made = service("u1", &[80], json!({ "team": "a", "cloud": "b" }));
    made["metadata"]["annotations"][COPIED_ANNOTATION] = json!(r#"["team"]"#);
    let made = stored(made, "5");
    world.on(2, Event::Wrote(1, Ok(made.clone())));
    world.seen(2, made);
    let todo = world.on(3, wanted("u1", Some(service("u1", &[80], json!({})))));
    let metadata = &patched(&todo).1["metadata"];
    assert_eq!(metadata["labels"], json!({ "team": null }), "{metadata}");
    assert_eq!(metadata["annotations"], json!({ COPIED_ANNOTATION: "[]" }));
}

#[test]
fn somebody_elses_service_is_not_touched() {
    let mut of_another_controller = service("u1", &[1], json!({}));
    of_another_controller["metadata"]["annotations"][CONTROLLER_ANNOTATION] = json!("example.com/them");
    for (theirs, is_ours) in [
        (
            json!({ "metadata": { "namespace": "shop", "name": "weir-web" }, "spec": { "ports": [{ "port": 1 }] } }),
            false,
        ),
        (service("another", &[80], json!({})), true),
        (of_another_controller, false),
    ] {
        let mut world = World::leading();
        world.store.put("Service", stored(theirs.clone(), "5"));
        assert_eq!(world.on(1, wanted("u1", Some(service("u1", &[81], json!({}))))), []);
        let mut world = World::leading();
        let todo = world.seen(1, stored(theirs, "5"));
        assert_eq!(!todo.is_empty(), is_ours, "its Gateway is looked for: {todo:?}");
        assert_eq!(world.on(2, wanted("u1", Some(service("u1", &[80], json!({}))))), []);
    }
}

#[test]
fn a_service_goes_only_if_the_server_says_that_its_gateway_is_gone() {
    for (answer, is_deleted) in [
        (Err(ApiError::NotFound), true),
        (Ok(gateway("u1", "weir")), false),
        (Ok(gateway("u2", "weir")), true),
        (Ok(gateway("u1", "theirs")), true),
        (Ok(gateway("u1", "unknown")), false),
        (Err(ApiError::Away("503".to_owned(), None)), false),
        (Err(ApiError::Forbidden("no".to_owned())), false),
    ] {
        let mut world = World::leading();
        for (name, controller) in [("weir", US), ("theirs", "example.com/them")] {
            let value = json!({
                "metadata": { "name": name, "resourceVersion": "1" }, "spec": { "controllerName": controller },
            });
            world.store.put("GatewayClass", Object::new(watched("GatewayClass").unwrap(), value).unwrap());
        }
        let todo = world.seen(1, stored(service("u1", &[80], json!({})), "5"));
        assert_eq!(todo, [Action::Read(1, Name::new("shop", "web"))]);
        let todo = world.on(2, Event::Read(1, answer.clone()));
        let delete = Action::Delete(2, target("weir-web"), "s1".into());
        assert_eq!(todo.contains(&delete), is_deleted, "{answer:?}: {todo:?}");
        if is_deleted {
            assert_eq!(world.on(3, Event::Deleted(2, Ok(()))), []);
            assert_eq!(world.keeper.next(), Time::MAX);
        } else {
            assert!(world.keeper.next() > S(2), "it looks again later");
        }
    }
}

#[test]
fn a_gateway_without_anything_to_serve_keeps_its_service() {
    let mut world = World::leading();
    world.on(1, wanted("u1", None));
    assert_eq!(world.seen(2, stored(service("u1", &[80], json!({})), "5")), []);
}

#[test]
fn a_service_of_an_earlier_gateway_of_that_name_makes_room() {
    let mut world = World::leading();
    world.seen(1, stored(service("u1", &[80], json!({})), "5"));
    world.on(1, Event::Read(1, Ok(gateway("u1", "weir"))));
    let todo = world.on(2, wanted("u2", None));
    assert_eq!(todo, [], "it has just looked");
    let todo = world.on(200, Event::Tick);
    assert_eq!(todo, [Action::Read(2, Name::new("shop", "web"))]);
    assert_eq!(
        world.on(201, Event::Read(2, Ok(gateway("u2", "weir")))),
        [Action::Delete(3, target("weir-web"), "s1".into())]
    );
}

#[test]
fn who_does_not_lead_writes_nothing() {
    let mut world = World { keeper: Keeper::new(US, 1), store: Store::default() };
    let body = service("u1", &[80], json!({}));
    assert_eq!(world.on(1, wanted("u1", Some(body.clone()))), []);
    assert_eq!(world.seen(1, stored(service("gone", &[80], json!({})), "1")), []);
    assert_eq!(world.on(1, Event::Tick), []);
    world.store.delete("Service", &Name::new("shop", "weir-web"));
    world.on(1, Event::Seen(target("weir-web"), None));
    assert_eq!(world.on(2, Event::Lead(true)), [Action::Create(1, target("weir-web"), body)]);
    world.on(3, Event::Lead(false));
    assert_eq!(world.on(4, Event::Wrote(1, Err(ApiError::Conflict))), []);
    assert_eq!(world.on(100, Event::Tick), []);
}

#[test]
fn what_is_forbidden_is_said_once_and_tried_again() {
    let mut world = World::leading();
    world.on(1, wanted("u1", Some(service("u1", &[80], json!({})))));
    let no = || ApiError::Forbidden("no".to_owned());
    let said = Action::Say(Note::Forbidden("create", target("x").kind, "no".to_owned()));
    assert_eq!(world.on(2, Event::Wrote(1, Err(no()))), [said]);
    assert!(matches!(world.on(30, Event::Tick)[..], [Action::Create(2, ..)]));
    assert_eq!(world.on(31, Event::Wrote(2, Err(no()))), [], "said already");
    assert!(matches!(world.on(60, Event::Tick)[..], [Action::Create(3, ..)]));
    // No answer comes at all.
    world.on(61 + PATIENCE.as_secs(), Event::Tick);
    assert!(matches!(world.on(200, Event::Tick)[..], [Action::Create(4, ..)]));
}

/// A permission that no object waits for is not tried again, so nobody would notice that it has been granted.
#[test]
fn a_permission_is_missing_while_an_object_waits_for_it() {
    let no = || ApiError::Forbidden("no".to_owned());
    let missing = |world: &World| world.keeper.forbidden().collect::<Vec<_>>();
    let refused = || {
        let mut world = World::leading();
        assert_eq!(world.seen(1, stored(service("u1", &[80], json!({})), "5")).len(), 1);
        world.on(2, Event::Read(1, Err(ApiError::NotFound)));
        world.on(3, Event::Deleted(2, Err(no())));
        assert_eq!(missing(&world), [("delete", "Service")]);
        world
    };
    let mut world = refused();
    world.on(4, Event::Lead(false));
    assert_eq!(missing(&world), [], "another replica keeps them");

    let mut world = refused();
    world.store.delete("Service", &Name::new("shop", "weir-web"));
    world.on(4, Event::Seen(target("weir-web"), None));
    assert_eq!(missing(&world), [], "somebody else has deleted it");

    let mut world = refused();
    world.on(4, wanted("u1", None));
    assert_eq!(world.on(30, Event::Tick), [], "its Gateway is there again");
    assert_eq!(missing(&world), []);

    // It is asked for the Gateway each time before it deletes, and says nothing of that.
    let mut world = refused();
    assert_eq!(world.on(30, Event::Tick), [Action::Read(3, Name::new("shop", "web"))]);
    world.on(31, Event::Read(3, Err(ApiError::NotFound)));
    assert_eq!(missing(&world), [("delete", "Service")]);
    assert_eq!(world.on(32, Event::Deleted(4, Err(no()))), [], "said already");
    assert!(matches!(world.on(60, Event::Tick)[..], [Action::Read(5, _)]));
    world.on(61, Event::Read(5, Err(ApiError::NotFound)));
    world.on(62, Event::Deleted(6, Err(ApiError::Conflict)));
    assert_eq!(missing(&world), [], "who meets a conflict was permitted to delete");
}

#[test]
fn who_undoes_a_service_does_not_make_us_write_all_the_time() {
    let mut world = World::leading();
    let ours = service("u1", &[80], json!({}));
    let theirs = service("u1", &[81], json!({}));
    world.on(1, wanted("u1", Some(ours.clone())));
    let (mut writes, mut version) = (0, 10);
    world.on(1, Event::Wrote(1, Ok(stored(ours.clone(), "9"))));
    for at in 2..62 {
        version += 1;
        let mut todo = world.seen(at, stored(theirs.clone(), &version.to_string()));
        todo.extend(world.on(at, Event::Tick));
        for action in todo {
            if let Action::Patch(number, ..) = action {
                (writes, version) = (writes + 1, version + 1);
                world.on(at, Event::Wrote(number, Ok(stored(ours.clone(), &version.to_string()))));
            }
        }
    }
    assert!((5..=8).contains(&writes), "{writes} writes in a minute");
}

fn record(ports: &str) -> (Target, Value) {
    let target = Target { kind: watched("ConfigMap").unwrap().kind, key: Name::new("weir", "weir-ports") };
    let metadata = json!({
        "namespace": "weir", "name": "weir-ports", "annotations": { CONTROLLER_ANNOTATION: US },
    });
    (target, json!({ "metadata": metadata, "data": { "u1": ports } }))
}

fn stored_record(mut value: Value, version: &str) -> Object {
    value["metadata"]["uid"] = json!("r1");
    value["metadata"]["resourceVersion"] = json!(version);
    Object::new(watched("ConfigMap").unwrap(), value).unwrap()
}

/// The Service and the record of its ports.
fn wanted_recorded(service: &Value, ports: &str) -> Event {
    Event::Want(Wanted {
        objects: [record(ports), (target("weir-web"), service.clone())].into(),
        gateways: [(Name::new("shop", "web"), "u1".to_owned())].into(),
    })
}

#[test]
fn ports_are_recorded_before_the_service_leads_to_them() {
    let mut world = World::leading();
    let seen_record = |world: &mut World, at: u64, object: Object| {
        world.store.put("ConfigMap", object.clone());
        world.on(at, Event::Seen(record("").0, Some(object)))
    };
    let body = service("u1", &[80], json!({}));
    let (target_of_record, first) = record("80=15080");
    let todo = world.on(1, wanted_recorded(&body, "80=15080"));
    assert_eq!(todo, [Action::Create(1, target_of_record.clone(), first.clone())]);
    // The watch has yet to show it: until then, whoever edits the Service decides where it leads.
    let made = stored_record(first, "5");
    assert_eq!(world.on(2, Event::Wrote(1, Ok(made.clone()))), []);
    assert_eq!(world.on(2, Event::Tick), []);
    let todo = seen_record(&mut world, 2, made);
    assert_eq!(todo, [Action::Create(2, target("weir-web"), body.clone())]);
    let created = stored(body, "6");
    world.on(3, Event::Wrote(2, Ok(created.clone())));
    world.seen(3, created);

    let more = service("u1", &[80, 443], json!({}));
    let todo = world.on(4, wanted_recorded(&more, "80=15080 443=15443"));
    assert!(matches!(&todo[..], [Action::Patch(3, target, _)] if *target == target_of_record), "{todo:?}");
    let next = stored_record(record("80=15080 443=15443").1, "7");
    assert_eq!(world.on(5, Event::Wrote(3, Ok(next.clone()))), []);
    let todo = seen_record(&mut world, 5, next);
    assert!(
        matches!(&todo[..], [Action::Patch(4, patched, _)] if *patched == target("weir-web")),
        "{todo:?}"
    );
}

#[test]
fn a_record_that_is_refused_keeps_no_service_waiting() {
    for error in [ApiError::Forbidden("no".to_owned()), ApiError::Refused(422, "no".to_owned())] {
        let mut world = World::leading();
        let body = service("u1", &[80], json!({}));
        world.on(1, wanted_recorded(&body, "80=15080"));
        let todo = world.on(2, Event::Wrote(1, Err(error.clone())));
        assert!(todo.contains(&Action::Create(2, target("weir-web"), body)), "{error:?}: {todo:?}");
    }
    // A server that is away is asked for both again.
    let mut world = World::leading();
    world.on(1, wanted_recorded(&service("u1", &[80], json!({})), "80=15080"));
    assert_eq!(world.on(2, Event::Wrote(1, Err(ApiError::Away("503".to_owned(), None)))), []);
    let todo = world.on(60, Event::Tick);
    assert!(matches!(&todo[..], [Action::Create(2, target, _)] if target.kind == "ConfigMap"), "{todo:?}");
}
