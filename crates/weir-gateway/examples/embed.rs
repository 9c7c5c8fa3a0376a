//! A gateway in a program of your own, with a filter of your own. Try: `curl -i -A evil-bot http://127.0.0.1:8080/`

use weir_gateway::prelude::*;
use weir_gateway::{StartError, config::Source};

static TURN_AWAY: FilterKind = FilterKind::of::<TurnAway>("turn_away").with_causes(&[&TURNED_AWAY]);

static TURNED_AWAY: Cause = Cause {
    code: "turned_away",
    status: 403,
    meaning: "Not for you.",
    change: "the filter turn_away",
    ..Cause::USUAL
};

/// Refuses requests with one of these words in their User-Agent.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TurnAway {
    /// The words, compared as they are.
    agents: Vec<String>,
}

impl Filter for TurnAway {
    fn on_request(&self, head: &mut RequestHead, _: &mut Cx) -> Flow {
        let agent = String::from_utf8_lossy(head.headers.get_str("user-agent").unwrap_or_default());
        let meant = self.agents.iter().any(|word| agent.contains(word));
        if meant { Flow::refuse(&TURNED_AWAY) } else { Flow::Continue }
    }
}

const CONFIG: &str = r#"
listeners: { web: { address: 127.0.0.1:8080 } }
filters: [ { turn_away: { agents: [evil-bot] } } ]
routes: { hello: { match: { path: "/*" }, respond: { body: "hello from inside\n" } } }
"#;

fn main() -> Result<(), StartError> {
    let gateway = weir_gateway::builder(Source::text("embed.yaml", CONFIG)).filter(&TURN_AWAY).start()?;
    println!("http://{}/", gateway.address("web").expect("the config names it"));
    gateway.wait();
    Ok(())
}
