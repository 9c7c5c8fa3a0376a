//! Misspelled names: guesses which known name was meant.

/// The candidate nearest to the typed name, if it is near enough to be a misspelling.
pub fn nearest_name<'a>(typed: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let typed = typed.to_ascii_lowercase();
    let near = |name: &&str| {
        let name = name.to_ascii_lowercase();
        let distance = distance(&typed, &name);
        // A third of the letters may differ, but not all of a short name. A name also fits if the other is its start,
        // of at least three letters.
        let letters = typed.chars().count().max(name.chars().count());
        let fits = distance <= (letters / 3).max(1) && distance < letters
            || (typed.len() >= 3
                && (name.starts_with(&typed) || typed.starts_with(&name) && name.len() >= 3));
        fits.then_some(distance)
    };
    let ranked = candidates.into_iter().filter_map(|name| near(&name).map(|distance| (distance, name)));
    ranked.min_by_key(|(distance, _)| *distance).map(|(_, name)| name)
}

/// The number of edits that turn one word into the other, with a swap of two neighbors as one (optimal string
/// alignment). Only the first 64 letters count.
pub fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(64).collect(), b.chars().take(64).collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let change = usize::from(a[i - 1] != b[j - 1]);
                let mut best = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + change);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(rows[i - 2][j - 2] + 1);
                }
                best
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspellings_are_recognised() {
        let keys = ["endpoints", "protocol", "timeouts", "tls", "host", "keepalive", "b"];
        for (typed, meant) in [
            ("endpoint", Some("endpoints")),
            ("timeout", Some("timeouts")),
            ("timoeuts", Some("timeouts")),
            ("keep_alive", Some("keepalive")),
            ("Host", Some("host")),
            ("weight", None),
            ("x", None),
            ("a", None),
        ] {
            assert_eq!(nearest_name(typed, keys), meant, "{typed}");
        }
    }
}
