//! A small strict reader of both formats of metrics: panics, with the line, at whatever a scraper might refuse.

use std::collections::{BTreeMap, BTreeSet};

/// The families of a page by name, and the samples of each by their line without the value.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    pub(crate) kinds: BTreeMap<String, String>,
    pub(crate) samples: BTreeMap<String, f64>,
}

impl Metrics {
    pub(crate) fn value(&self, sample: &str) -> f64 {
        *self
            .samples
            .get(sample)
            .unwrap_or_else(|| panic!("no sample {sample} in {:#?}", self.samples.keys()))
    }
}

pub(crate) fn parse(page: &str, open_metrics: bool) -> Metrics {
    assert!(page.ends_with('\n'));
    assert_eq!(page.ends_with("\n# EOF\n"), open_metrics);
    assert_eq!(page.matches("# EOF").count(), usize::from(open_metrics));
    let mut metrics = Metrics::default();
    let mut family = String::new();
    let mut helped = BTreeSet::new();
    for line in page.lines().filter(|line| *line != "# EOF") {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let (what, name, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
            match what {
                "HELP" => assert!(helped.insert(name.to_owned()) && rest.ends_with('.'), "{line}"),
                "TYPE" => {
                    family = name.to_owned();
                    assert!(helped.contains(name), "{line}");
                    assert!(metrics.kinds.insert(family.clone(), rest.to_owned()).is_none(), "twice: {line}");
                }
                "UNIT" => {
                    assert!(open_metrics && name == family && name.ends_with(&format!("_{rest}")), "{line}")
                }
                _ => panic!("{line}"),
            }
            continue;
        }
        let line = match line.split_once(" # {") {
            Some((line, exemplar)) => {
                assert!(open_metrics && line.contains("_bucket{"), "{line}");
                check_exemplar(exemplar);
                line
            }
            None => line,
        };
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let suffix = name.strip_prefix(family.as_str()).unwrap_or_else(|| panic!("not of {family}: {line}"));
        let allowed: &[&str] = match (metrics.kinds[&family].as_str(), open_metrics) {
            ("counter", true) => &["_total"],
            ("info", true) => &["_info"],
            ("histogram", _) => &["_bucket", "_sum", "_count"],
            ("counter" | "gauge", _) => &[""],
            other => panic!("{other:?}: {line}"),
        };
        assert!(allowed.contains(&suffix), "{line}");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{line}");
        check_labels(labels, line);
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(metrics.samples.insert(series.to_owned(), value).is_none(), "twice: {line}");
    }
    check_histograms(&metrics);
    metrics
}

/// OpenMetrics 1.0, *Exemplars*: labels of at most 128 characters, a value, a time.
fn check_exemplar(exemplar: &str) {
    let (labels, numbers) = exemplar.rsplit_once("} ").unwrap_or_else(|| panic!("{exemplar}"));
    check_labels(&format!("{labels}}}"), exemplar);
    assert!(labels.len() <= 128, "{exemplar}");
    let numbers: Vec<f64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
    assert_eq!(numbers.len(), 2, "{exemplar}");
}

/// `a="b",c="d"}`: names as they should be and none twice, values escaped.
fn check_labels(labels: &str, line: &str) {
    let mut rest = labels;
    let mut names = BTreeSet::new();
    while rest != "}" {
        let (name, value) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
        assert!(!name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{line}");
        assert!(names.insert(name), "{line}");
        let mut chars = value.char_indices();
        let end = loop {
            match chars.next().unwrap_or_else(|| panic!("{line}")) {
                (_, '\\') => {
                    let (_, escaped) = chars.next().unwrap();
                    assert!(matches!(escaped, '\\' | '"' | 'n'), "{line}");
                }
                (at, '"') => break at,
                (_, c) => assert!(c != '\n', "{line}"),
            }
        };
        rest = &value[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

/// Buckets grow, the last one is the count.
fn check_histograms(metrics: &Metrics) {
    let mut buckets: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for (series, value) in &metrics.samples {
        if let Some((name, labels)) = series.split_once("_bucket{") {
            let (others, le) = labels.split_once("le=\"").unwrap();
            let bound: f64 = le.trim_end_matches("\"}").parse().unwrap();
            let others = others.trim_end_matches(',');
            buckets.entry(format!("{name}_count{{{others}}}")).or_default().push((bound, *value));
        }
    }
    for (count, mut buckets) in buckets {
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.windows(2).all(|w| w[0].1 <= w[1].1), "{count}: {buckets:?}");
        assert_eq!(buckets.len(), 16);
        assert_eq!(buckets[15], (f64::INFINITY, metrics.value(&count)));
        assert!(metrics.samples.contains_key(&count.replace("_count{", "_sum{")));
    }
}
