//! Thread groups: their users over time, and their samplers.

use super::{Importer, Scope, child, is_on, list, property, title};
use crate::plan::model::Scenario;
use crate::yaml::{Map, Value};
use weir_report::xml::Element;

impl Importer<'_, '_> {
    pub(super) fn group(&mut self, element: &Element, tree: Option<&Element>, scope: &Scope) {
        let mut scenario = Scenario { name: title(element).to_owned(), ..Scenario::default() };
        match &*element.name {
            "SetupThreadGroup" => {
                let steps = self.steps(tree, scope, &mut scenario, true);
                self.plan.setup.extend(steps);
                let piece = self.enter(element);
                self.cx.ledger.same(piece);
                return;
            }
            "PostThreadGroup" => {
                let steps = self.steps(tree, scope, &mut scenario, true);
                self.plan.teardown.extend(steps);
                let piece = self.enter(element);
                self.cx.ledger.same(piece);
                return;
            }
            _ => {}
        }
        let piece = self.enter(element);
        match self.load(element) {
            Ok(load) => {
                scenario.more = load;
                self.cx.ledger.same(piece);
            }
            Err(why) => {
                self.cx.ledger.refused(piece, why, "`users:` or `rate:` of the scenario");
                scenario.more = Map::new().with("users", 1_i64);
            }
        }
        match &*property(element, "ThreadGroup.on_sample_error") {
            "" | "continue" => {}
            "startnextloop" => scenario.more.set("on_failure", "end"),
            "stopthread" => {
                scenario.more.set("on_failure", "end");
                self.cx.ledger.changed(piece, "an error ends the iteration, and not the user");
            }
            _ => scenario.more.set("on_failure", "stop"),
        }
        let steps = self.steps(tree, scope, &mut scenario, false);
        scenario.steps.extend(steps);
        // Without a cookie manager, JMeter keeps no cookies.
        let own =
            tree.into_iter().flat_map(|tree| &tree.children).filter(|child| child.name == "CookieManager");
        let own: Vec<&Element> = own.collect();
        let is_new_user = property(element, "ThreadGroup.same_user_on_next_iteration") == "false";
        let has = |setting: &str| own.iter().any(|manager| is_on(manager, setting));
        let of_group = scope.cookies_of_group || has("CookieManager.controlledByThreadGroup");
        let forgets = scope.forgets_cookies || has("CookieManager.clearEachIteration");
        let begins_without = if of_group { is_new_user } else { forgets };
        if !scope.has_cookies && own.is_empty() {
            scenario.more.set("cookies", false);
        } else if begins_without {
            scenario.more.set("cookies", "iteration");
        }
        self.plan.scenarios.push(scenario);
    }

    /// The load of a thread group.
    fn load(&mut self, element: &Element) -> Result<Map, String> {
        let number = |name: &str| property(element, name).parse::<i64>().ok().filter(|n| *n >= 0);
        let mut more = Map::new();
        match &*element.name {
            "ThreadGroup" => {
                let users = number("ThreadGroup.num_threads")
                    .filter(|n| *n > 0)
                    .ok_or("its number of threads is unknown")?;
                let ramp = number("ThreadGroup.ramp_time").unwrap_or(0);
                let duration =
                    number("ThreadGroup.duration").filter(|_| is_on(element, "ThreadGroup.scheduler"));
                if let Some(delay) = number("ThreadGroup.delay")
                    .filter(|delay| *delay > 0 && is_on(element, "ThreadGroup.scheduler"))
                {
                    more.set("start_at", format!("{delay}s"));
                }
                let loops = child(element, "ThreadGroup.main_controller")
                    .map(|main| property(main, "LoopController.loops"))
                    .and_then(|loops| loops.parse::<i64>().ok());
                match (duration, ramp) {
                    (Some(duration), ramp) if ramp > 1 && duration > ramp => {
                        more.set("users", ramp_and_hold(users, ramp, duration - ramp));
                    }
                    (Some(duration), _) => {
                        more.set("users", parts(&[("hold", format!("{users} for {duration}s"))]))
                    }
                    (None, _) => more.set("users", users),
                }
                match (loops, duration) {
                    (Some(loops), _) if loops > 0 => more.set("iterations", users.saturating_mul(loops)),
                    (_, Some(_)) => {}
                    _ => self
                        .cx
                        .ledger
                        .note("A thread group runs for ever: give `weir load` a duration with -d."),
                }
            }
            "kg.apc.jmeter.threads.UltimateThreadGroup" => {
                let [row] = list(element, "ultimatethreadgroupdata") else {
                    return Err(
                        "several rows of an Ultimate Thread Group add up, and a shape has one".to_owned()
                    );
                };
                let cells: Vec<i64> =
                    row.children.iter().filter_map(|cell| cell.text.trim().parse().ok()).collect();
                let [users, delay, startup, hold, shutdown] = cells[..] else {
                    return Err("its row does not have five numbers".to_owned());
                };
                if users < 1 {
                    return Err("its row has no threads".to_owned());
                }
                if delay > 0 {
                    more.set("start_at", format!("{delay}s"));
                }
                let mut all = Vec::new();
                if startup > 0 {
                    all.push(("ramp", format!("{users} over {startup}s")));
                }
                if hold > 0 {
                    all.push(("hold", format!("{users} for {hold}s")));
                }
                if shutdown > 0 {
                    all.push(("ramp", format!("0 over {shutdown}s")));
                }
                more.set("users", parts(&all));
            }
            "com.blazemeter.jmeter.threads.concurrency.ConcurrencyThreadGroup" => {
                let seconds = if property(element, "Unit") == "S" { 1 } else { 60 };
                let users = number("TargetLevel")
                    .filter(|n| *n > 0)
                    .ok_or("its target is not a number that is known")?;
                let (ramp, hold) =
                    (number("RampUp").unwrap_or(0) * seconds, number("Hold").unwrap_or(0) * seconds);
                more.set("users", ramp_and_hold(users, ramp, hold));
            }
            other => {
                let short = other.rsplit('.').next().unwrap_or(other);
                return Err(format!("the thread group {short} is not followed, so it has one user"));
            }
        }
        Ok(more)
    }
}

fn ramp_and_hold(users: i64, ramp: i64, hold: i64) -> Value {
    let mut all = Vec::new();
    if ramp > 0 {
        all.push(("ramp", format!("{users} over {ramp}s")));
    }
    if hold > 0 {
        all.push(("hold", format!("{users} for {hold}s")));
    }
    parts(&all)
}

fn parts(all: &[(&str, String)]) -> Value {
    if all.is_empty() {
        return Value::Number(1);
    }
    Value::List(all.iter().map(|(key, part)| Value::Map(Map::new().with(*key, part.clone()))).collect())
}
