//! `weir config adopt` and `release`: an entry moves between a user's file and the API without interruption.

use super::*;

/// A gateway with a separate file for users.
fn start(folder: &Path) -> (Api, std::path::PathBuf) {
    let hand = folder.join("hand.yaml");
    fs::write(&hand, "routes:\n  b: { match: { path: /b }, respond: { status: 200, body: by hand } }\n")
        .unwrap();
    let config = config(folder, "", &format!("include: [ {} ]\n", hand.display()));
    (Api::of(Weir::start(&config), ""), hand)
}

#[test]
fn a_thing_moves_to_the_api_and_back() {
    let folder = TempDir::new().unwrap();
    let (api, hand) = start(folder.path());
    let managed = || fs::read_to_string(folder.path().join("managed.yaml")).unwrap();
    let serves = |text: &str| {
        api.weir.client().get("/b").expect_status(200).expect_body(text);
    };
    let put = |text: &str| api.ask("PUT /api/v1/config/routes/b", ANY, &saying("/b", text));

    // While both have it, the file takes precedence and owns it.
    let moved = weir(&api, &["config", "adopt", "routes.b"]);
    moved.expect_code(0).expect_text("hand.yaml:2:3 counts until you delete it there");
    assert!(managed().contains("yields") && managed().contains("by hand"), "{}", managed());
    serves("by hand");
    put("api").expect_status(409);
    weir(&api, &["config", "adopt", "routes.b"]).expect_code(0).expect_text("counts until you delete it");
    fs::write(&hand, "{}\n").unwrap();
    api.weir.reload().unwrap();
    serves("by hand");
    weir(&api, &["config", "adopt", "routes.b"]).expect_code(0).expect_text("belongs to the API");
    assert!(!managed().contains("yields"), "{}", managed());
    put("api").expect_status(200);
    serves("api");

    // Back again: stdout has exactly the text to write.
    let moved = weir(&api, &["config", "release", "routes.b"]);
    moved.expect_code(0).expect_text("Write this into a file of your own");
    assert_eq!(
        moved.stdout,
        "routes:\n  b:\n    match:\n      path: /b\n    respond:\n      status: 200\n      body: api\n"
    );
    fs::write(&hand, &moved.stdout).unwrap();
    api.weir.reload().unwrap();
    serves("api");
    put("more").expect_status(409);
    weir(&api, &["config", "release", "routes.b"]).expect_code(0).expect_text("no longer has it");
    assert!(!managed().contains("/b"), "{}", managed());
    serves("api");
    weir(&api, &["config", "release", "routes.b"])
        .expect_code(0)
        .expect_text("belongs to the file that has it");
    drop(api);
    let config = config(folder.path(), "", &format!("include: [ {} ]\n", hand.display()));
    Weir::start(&config).client().get("/b").expect_body("api");
}

#[test]
fn what_the_api_could_not_write_is_not_adopted() {
    let folder = TempDir::new().unwrap();
    let (api, hand) = start(folder.path());
    fs::create_dir(folder.path().join("www")).unwrap();
    fs::write(
        &hand,
        "routes:\n  b: { match: { path: /b }, respond: { status: 200, body: \"${HOME}\" } }\n\
         consumers: { shop: { key_auth: [ \"***\" ] } }\n",
    )
    .unwrap();
    api.weir.reload().unwrap();
    weir(&api, &["config", "adopt", "routes.b"])
        .expect_code(1)
        .expect_text("variable-refused")
        .expect_text("hand.yaml:2:");
    weir(&api, &["config", "adopt", "consumers.shop"]).expect_code(1).expect_text("masked-secret");
    for (name, said) in [
        ("routes.none", "there is no `routes.none`"),
        ("routes", "expected e.g. routes.orders"),
        ("workers.a", "no such section"),
    ] {
        weir(&api, &["config", "adopt", name]).expect_code(1).expect_text(said);
        weir(&api, &["config", "release", name]).expect_code(1).expect_text(said);
    }
    assert!(!folder.path().join("managed.yaml").exists());

    // A relative path would refer to another file.
    let elsewhere = folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let hand = elsewhere.join("hand.yaml");
    fs::create_dir(elsewhere.join("www")).unwrap();
    fs::write(&hand, "routes: { f: { match: { path: \"/f/*\" }, files: { root: ./www } } }\n").unwrap();
    let config = config(folder.path(), "", &format!("include: [ {} ]\n", hand.display()));
    let api = Api::of(Weir::start(&config), "");
    weir(&api, &["config", "adopt", "routes.f"]).expect_code(1).expect_text("relative-path");
}
