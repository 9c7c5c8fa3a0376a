//! The log of the process, configured once and again. One test: there is one log.

use std::fs;
use std::time::Duration;

use weir_telemetry::Output;
use weir_telemetry::log::{self, Format, Level, Settings};

#[test]
fn the_log_is_configured_reopened_and_configured_again() {
    let place = std::env::temp_dir().join(format!("weir-telemetry-log-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    let (first, moved, second) = (place.join("a.log"), place.join("a.log.1"), place.join("b.log"));
    // Other tests warn through the same log: look at our own lines only.
    let lines = |path| {
        assert!(log::flush(Duration::from_secs(20)));
        let text = fs::read_to_string(path).unwrap();
        text.lines()
            .filter_map(|line| line.split_once("mine "))
            .map(|(_, rest)| rest.to_owned())
            .collect::<Vec<_>>()
    };

    assert!(log::enabled(Level::Info) && !log::enabled(Level::Debug));
    let mut settings = Settings { output: Output::File(first.clone()), ..Settings::default() };
    log::configure(&settings).unwrap();
    log::info("mine n=1", &[("k", &"v")]);
    log::debug("mine n=2", &[]);
    settings.level = Level::Debug;
    log::configure(&settings).unwrap();
    log::debug("mine n=3", &[]);
    assert_eq!(lines(&first), ["n=1 k=v", "n=3"]);

    fs::rename(&first, &moved).unwrap();
    log::reopen().unwrap();
    log::error("mine n=4", &[]);
    assert_eq!(lines(&first), ["n=4"]);
    assert_eq!(lines(&moved), ["n=1 k=v", "n=3"]);

    let refused = Settings { output: Output::parse("/no/such/dir/x.log"), ..settings.clone() };
    assert!(log::configure(&refused).is_err());
    settings.format = Format::Json;
    settings.output = Output::File(second.clone());
    settings.level = Level::Warn;
    log::configure(&settings).unwrap();
    log::info("mine n=5", &[]);
    let warning = log::every(Duration::from_secs(3600));
    for _ in 0..3 {
        warning.warn("mine n=6", &[]);
    }
    assert_eq!(lines(&second), ["n=6\"}"]);
    assert_eq!(lines(&first), ["n=4"]);
    assert_eq!(log::dropped(), 0);
    let _ = fs::remove_dir_all(place);
}
