//! Shares the witnesses of a proof out among several worlds, which are asked at once.
//!
//! Each world runs its own two programs and its own echo server, and sends one witness at a time. So every request that
//! an upstream receives belongs to the current witness; a marker in the request, to which a config could react, is not
//! needed.

use super::job::{Found, Job};
use super::play_in_a_world;
use anyhow::{Result, anyhow};
use std::collections::BTreeMap;
use weir_import::proof::{Observation, Witness};

/// Most worlds. Each holds both programs with the whole config.
const MAX_WORLDS: usize = 8;
/// Witnesses that are worth a further world, which starts both programs once more: about 0.5 s.
const WITNESSES_OF_A_WORLD: usize = 2000;

/// Plays the job, whose own list of witnesses is empty, with these. Requests over limits are asked in the first world
/// only. What was observed comes back in the order of the witnesses.
///
/// # Errors
/// If the processes of a world fail.
pub(super) fn play(job: &Job, witnesses: &[Witness]) -> Result<Found> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // A world waits for one of its programs half of the time.
    let worlds = (witnesses.len() / WITNESSES_OF_A_WORLD).clamp(1, (cores * 2).min(MAX_WORLDS));
    let parts = split(witnesses, worlds);
    let jobs: Vec<Job> =
        parts.iter().enumerate().map(|(at, part)| part_of(job, witnesses, part, at)).collect();
    let played: Vec<Result<Found>> = std::thread::scope(|scope| {
        let playing: Vec<_> = jobs.iter().map(|job| scope.spawn(|| play_in_a_world(job))).collect();
        let failed = |_| Err(anyhow!("a thread of the proof failed"));
        playing.into_iter().map(|world| world.join().unwrap_or_else(failed)).collect()
    });
    let mut whole = Found::default();
    let mut all: Vec<(usize, Observation, Observation)> = Vec::with_capacity(witnesses.len());
    for (at, (found, part)) in played.into_iter().zip(&parts).enumerate() {
        let mut found = found?;
        if found.no_world.is_some() || found.refused.is_some() || found.failure.is_some() {
            return Ok(found);
        }
        // Of a gateway elsewhere there is nothing here: it was asked already.
        let mut old = std::mem::take(&mut found.old).into_iter();
        for (witness, new) in part.iter().zip(std::mem::take(&mut found.new)) {
            all.push((*witness, old.next().unwrap_or_default(), new));
        }
        if at == 0 {
            whole = found;
        }
    }
    all.sort_by_key(|(witness, ..)| *witness);
    for (_, old, new) in all {
        whole.old.push(old);
        whole.new.push(new);
    }
    Ok(whole)
}

/// The job of one world.
fn part_of(job: &Job, witnesses: &[Witness], part: &[usize], world: usize) -> Job {
    let asks = part.iter().filter_map(|at| witnesses.get(*at)).map(|witness| witness.ask.clone()).collect();
    let mut own = Job { asks, ..job.clone() };
    if world > 0 {
        own.old_limited = None;
        own.limit_asks.clear();
    }
    own
}

/// Which witnesses each world asks, in their order. All of one site stay together: what a program remembers of one
/// request, such as a cached answer, meets the others that it matters to.
fn split(witnesses: &[Witness], worlds: usize) -> Vec<Vec<usize>> {
    let site = |witness: &Witness| witness.of.map_or(0, |(site, _)| site);
    let mut sites: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (at, witness) in witnesses.iter().enumerate() {
        sites.entry(site(witness)).or_default().push(at);
    }
    let mut parts = vec![Vec::new()];
    let mut taken = 0;
    for of_site in sites.into_values() {
        // A new part begins where the next share of all witnesses does.
        if taken * worlds >= parts.len() * witnesses.len() {
            parts.push(Vec::new());
        }
        taken += of_site.len();
        if let Some(part) = parts.last_mut() {
            part.extend(of_site);
        }
    }
    // The dead upstreams of all sites come last, as in the whole list.
    parts.iter_mut().for_each(|part| part.sort_unstable());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_import::Place;
    use weir_import::proof::Ask;
    use weir_import::proof::patterns::{Front, Line};

    fn witness(site: Option<usize>) -> Witness {
        let front = Front { ip: "127.0.0.1".to_owned(), port: 80, tls: false };
        let ask = Ask::new(&front, None, "/");
        let line = Line { place: Place::new("x", 1), text: String::new() };
        Witness { ask, about: String::new(), line, of: site.map(|site| (site, 0)) }
    }

    #[test]
    fn sites_stay_together_and_nothing_is_lost() {
        // Sites interleave, as those of dead upstreams do at the end.
        let all: Vec<Witness> = (0..90)
            .map(|at| witness((at % 10 != 9).then_some(at / 10)))
            .chain((0..9).map(|site| witness(Some(site))))
            .collect();
        for worlds in 1..=8 {
            let parts = split(&all, worlds);
            assert!(parts.len() <= worlds, "{worlds}: {parts:?}");
            assert!(parts.iter().all(|part| part.is_sorted() && !part.is_empty()), "{parts:?}");
            let mut asked: Vec<usize> = parts.concat();
            asked.sort_unstable();
            assert_eq!(asked, (0..all.len()).collect::<Vec<_>>(), "{worlds}");
            for site in 0..9 {
                let has = |part: &&Vec<usize>| part.iter().any(|at| all[*at].of == Some((site, 0)));
                assert_eq!(parts.iter().filter(has).count(), 1, "{worlds}: site {site}");
            }
        }
        assert_eq!(split(&all, 3).len(), 3);
        assert_eq!(split(&[], 4), [Vec::<usize>::new()]);
    }
}
