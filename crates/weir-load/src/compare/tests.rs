//! The order of blocks, and comparisons that are refused.

use super::*;

#[test]
fn blocks_go_there_and_back() {
    let options = |targets: &[&str]| CompareOptions {
        targets: targets.iter().map(|t| (*t).to_owned()).collect(),
        duration: Some("10s".to_owned()),
        ..CompareOptions::default()
    };
    let compare =
        Compare::new(&options(&["a=http://127.0.0.1:1/", "b=http://127.0.0.1:2/", "http://127.0.0.1:3/"]))
            .unwrap();
    assert_eq!(compare.order(), [0, 1, 2, 2, 1, 0]);
    assert_eq!(compare.names(), ["a", "b", "127.0.0.1:3"]);
    // Long enough to be judged, though fewer than ten rounds fit.
    assert_eq!(compare.block, Duration::from_millis(200));
    let shorter = CompareOptions {
        duration: Some("1s".to_owned()),
        ..options(&["a=http://127.0.0.1:1/", "b=http://127.0.0.1:2/"])
    };
    let two = Compare::new(&shorter).unwrap();
    assert!(
        (two.block + two.warmup) * 4 * 2 <= Duration::from_secs(1) && two.block >= Duration::from_millis(100)
    );
    // One round says nothing about its noise.
    let one = CompareOptions {
        block: Some("400ms".to_owned()),
        fail_if: vec!["p99 worse 5%".to_owned()],
        duration: Some("2s".to_owned()),
        ..options(&["a=http://127.0.0.1:1/", "b=http://127.0.0.1:2/"])
    };
    let told = Compare::new(&one).unwrap_err();
    assert!(told.iter().any(|m| m.to_string().contains("two rounds")), "{told:?}");
    assert_eq!(Compare::new(&options(&["a=http://127.0.0.1:1/"])).unwrap().order(), [0]);
    for bad in [&[][..], &["a=http://127.0.0.1:1/", "a=http://127.0.0.1:2/"], &["a=ftp://x/"]] {
        assert!(Compare::new(&options(bad)).is_err(), "{bad:?}");
    }
}
