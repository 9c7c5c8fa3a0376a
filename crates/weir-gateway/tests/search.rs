//! The search for a config without `-c`. A separate test executable, because it changes its process's working
//! directory.

use weir_gateway::config::{Source, load};

#[test]
fn a_file_that_appears_is_taken_and_kept() {
    let folder = tempfile::tempdir().unwrap();
    std::env::set_current_dir(folder.path()).unwrap();
    if std::path::Path::new("/etc/weir/weir.yaml").exists() {
        return; // this machine has its own Weir
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

    // The embedded default must not replace a config that ran.
    std::fs::remove_file("weir.yaml").unwrap();
    assert!(load(&source).is_err());
}
