//! Where a config is looked for without `-c`. A test executable of its own, because it changes the folder of its process.

use weir_gateway::config::{Source, load};

#[test]
fn a_file_that_appears_is_taken_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    std::env::set_current_dir(folder.path()).unwrap();
    if std::path::Path::new("/etc/weir/weir.yaml").exists() {
        return; // this machine runs a Weir of its own
    }
    let source = Source::find(None);
    let files = load(&source).unwrap().files;
    assert!(source.is_embedded());
    assert!(files.iter().any(|file| file.ends_with("weir.yaml")), "not watched: {files:?}");

    std::fs::write(
        "weir.yaml",
        "listeners: { mine: { address: 127.0.0.1:1 } }\nroutes: { a: { respond: {} } }\n",
    )
    .unwrap();
    assert!(load(&source).unwrap().config.listeners.get("mine").is_some());
    assert!(!source.is_embedded());

    // The embedded default must not take the place of a config that ran.
    std::fs::remove_file("weir.yaml").unwrap();
    assert!(load(&source).is_err());
}
