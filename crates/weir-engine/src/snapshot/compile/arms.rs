//! Splits of routes: upstreams with weights, and arms with filters of their own.

use super::Compiler;
use super::filters::{Filters, of_lists};
use crate::arms::{Counts, Draw, NAME};
use crate::snapshot::{Arm, Guards, Instance, List, Target};
use std::sync::Arc;
use weir_config::schema::{Share, Split};
use weir_filter::filter::{Filter, Hooks};

impl Compiler<'_> {
    /// The target of a split without filters.
    pub(super) fn target(&self, split: &Split) -> Option<Target> {
        let index = |name: &str| self.upstream_index.get(name).copied();
        if let [only] = &split.0[..] {
            return index(&only.upstream).map(Target::Upstream);
        }
        let mut total = 0u32;
        let shares = split.0.iter().filter(|s| s.weight > 0).map(|share| {
            total = total.saturating_add(share.weight);
            Some((total, index(&share.upstream)?))
        });
        Some(Target::Split(shares.collect::<Option<_>>()?))
    }

    /// The target of a split with filters, and the filter that draws an arm.
    pub(super) fn arms(
        &mut self,
        route: &str,
        split: &Split,
        captures: &[String],
        filters: &mut Filters<'_>,
    ) -> Option<(Target, u32)> {
        let mut arms = Vec::new();
        let mut lists = Vec::new();
        let mut is_whole = true;
        for share in &split.0 {
            let upstream = self.upstream_index.get(share.upstream.as_str()).copied();
            filters.targets = upstream.map(|_| share.upstream.to_string()).into_iter().collect();
            let scope = format!("routes.{route}.upstream.{}", share.name());
            let errors = self.found.errors();
            self.one_place(route, share, &scope);
            let chain = self.chain(share.filters(), &scope, Some(captures), filters);
            let is_broken = self.found.errors() > errors;
            let mut own = chain.iter().filter_map(|&filter| filters.made.get(filter as usize));
            let answers = own.any(|filter| filter.hooks.has(Hooks::ANSWERS));
            if upstream.is_none() && !answers {
                if !is_broken && share.may_answer() {
                    self.leads_nowhere(&scope, share);
                }
                is_whole = false;
            }
            let name: Arc<str> = share.name().as_str().into();
            lists.push(List { key: Arc::clone(&name), chain: chain.into() });
            arms.push(Arm { name, weight: share.weight, upstream });
        }
        filters.targets.clear();
        if !is_whole {
            return None;
        }
        let names: Vec<&str> = arms.iter().map(|arm| &*arm.name).collect();
        let key = format!("routes.{route}\0{NAME}\0{}", names.join("\0"));
        let counts = self.carry.kept.keep(key, || Counts::of(arms.len()));
        let draw = Draw::new(&arms, counts);
        let weights = arms.iter().map(|arm| (arm.name.to_string(), arm.weight.into()));
        let settings = serde_json::Value::Object(weights.collect());
        let hooks = draw.hooks() | of_lists(&lists, &filters.made);
        filters.made.push(Arc::new(Instance {
            name: NAME,
            place: format!("routes.{route}").into(),
            filter: Box::new(draw),
            hooks,
            reads_path_key: false,
            guards: Guards::default(),
            lists: lists.into(),
            settings,
            expressions: Box::default(),
            hidden: 0,
            judged: false,
            names_caller: false,
        }));
        let split = u32::try_from(filters.made.len() - 1).ok()?;
        Some((Target::Arms(arms.into()), split))
    }

    /// Refuses a route whose name is the place of an arm: filters of both would share their state and their metrics.
    fn one_place(&mut self, route: &str, share: &Share, scope: &str) {
        let other = format!("{route}.upstream.{}", share.name());
        if !share.filters().is_empty() && self.config.routes.contains(&other) {
            let message = format!("the route `{other}` has the same place as this arm");
            let hint = "rename the route or the arm: filters keep their state by place";
            self.error(scope, "ambiguous-name", message, Some(hint.into()));
        }
    }

    fn leads_nowhere(&mut self, path: &str, share: &Share) {
        let message = format!(
            "there is no upstream `{}`, and none of the filters of this arm answers every request",
            share.name()
        );
        let hint = "add `upstream: NAME` to the arm, or a filter such as `respond: { status: 503 }`";
        self.error(path, "no-answer", message, Some(hint.into()));
    }
}

/// Whether an arm of a split has filters.
pub(super) fn has_filters(split: &Split) -> bool {
    split.filters().next().is_some()
}
