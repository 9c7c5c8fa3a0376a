//! `--shape`: parts as written on the command line, such as `hold 100/s 1m, spike: jump 2000/s 10s, pause 5s`.

use super::{CONNECTIONS_MOST, Reader};
use crate::pace::{self, Rhythm};
use std::io;
use std::path::Path;
use std::sync::Arc;
use weir_plan::shape::{self, Course, PARTS_MOST, Spacing, Unit};
use weir_plan::{Disk, Files};
use weir_report::report::{Pace, StageUnit};

/// No files at all.
struct Nowhere;

impl Files for Nowhere {
    fn read(&self, _: &Path, _: u64) -> io::Result<Vec<u8>> {
        Err(io::Error::other("agents read no files of their machine: use a plan file"))
    }
}

impl Reader<'_> {
    /// The pace and rhythm of `--shape`; none if it is not given or wrong.
    pub(super) fn shape(&mut self) -> Option<(Pace, Rhythm)> {
        let text = self.options.shape.as_deref()?;
        let pieces: Vec<&str> = text.split(',').map(str::trim).collect();
        let unit = shape::unit_of(&pieces);
        if pieces.len() > PARTS_MOST {
            self.wrong("--shape", &format!("expected at most {PARTS_MOST} parts; a file or steps are one"));
            return None;
        }
        let spacing = self.spacing(unit);
        let files: &dyn Files = if self.options.is_sent { &Nowhere } else { &Disk };
        let mut read = Vec::new();
        for (i, piece) in pieces.iter().enumerate() {
            match shape::word(piece, unit, files) {
                Ok(piece) => read.push(piece),
                Err(why) => self.wrong(&place(i, piece), &why),
            }
        }
        if read.len() < pieces.len() {
            return None;
        }
        let spacing = spacing?;
        let seed = self.options.seed.unwrap_or(1);
        let course = match Course::new(&read, spacing, seed) {
            Ok(course) => course,
            Err(mistake) => {
                let place = match mistake.part().and_then(|i| Some((i, pieces.get(i)?))) {
                    Some((i, piece)) => place(i, piece),
                    None => format!("--shape {text}"),
                };
                self.wrong(&place, &mistake.to_string());
                return None;
            }
        };
        if unit == Unit::Users && course.users_most() == 0 {
            self.wrong("--shape", "no part has a user");
        }
        if unit == Unit::Users && course.users_most() > CONNECTIONS_MOST {
            self.wrong("--shape", "expected at most 1000000 users");
        }
        let of = match unit {
            Unit::Rate => StageUnit::Rate,
            Unit::Users => StageUnit::Users,
        };
        let mut pace = pace::described(&course, of, 0);
        if let Pace::Shape { parts, .. } = &mut pace {
            for (part, piece) in parts.iter_mut().zip(&pieces) {
                shape::named(piece).1.clone_into(&mut part.written);
            }
        }
        Some((pace, Rhythm::shaped(Arc::new(course), of)))
    }

    fn spacing(&mut self, unit: Unit) -> Option<Spacing> {
        let o = self.options;
        if unit == Unit::Users {
            if o.spacing.is_some() || o.seed.is_some() {
                self.wrong("--spacing", "is of a rate: the parts of --shape have numbers of users");
            }
            return Some(Spacing::Even);
        }
        let text = o.spacing.as_deref().unwrap_or("even");
        let spacing = shape::spacing(text);
        if spacing.is_none() {
            self.wrong(&format!("--spacing {text}"), "expected even, poisson or burst(N) with N from 1");
        }
        if o.seed.is_some() && spacing.is_some_and(|s| s != Spacing::Poisson) {
            self.wrong("--seed", "is for --spacing poisson: the others have no chance in them");
        }
        spacing
    }

    /// Refuses bursts that never find enough connections.
    pub(super) fn burst_fits(&mut self, rhythm: &Rhythm, clients: u64) {
        if let Some(Spacing::Burst(n)) = rhythm.shape().map(|course| course.spacing())
            && self.options.share.part(u64::from(n.get())) > clients
        {
            let hint = format!("a burst is larger than the most connections, {clients}: raise -c");
            self.wrong(&format!("--spacing burst({n})"), &hint);
        }
    }
}

fn place(i: usize, piece: &str) -> String {
    format!("--shape, part {}, `{piece}`", i + 1)
}
