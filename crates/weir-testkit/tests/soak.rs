//! The short form of `make soak`: all faults together for half a minute, with every request accounted for.

use std::process::Command;

#[test]
fn nothing_is_lost_doubled_or_invented() {
    let output = Command::new(env!("CARGO_BIN_EXE_weir-soak")).args(["--seconds", "30"]).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}
