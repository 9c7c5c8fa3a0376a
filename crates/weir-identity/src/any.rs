//! `any`: several filters that identify the caller or know its address, of which one must be satisfied.
//!
//! It calls its members' hooks itself. Each member keeps its own state in the exchange (`Cx::member`). After the
//! request's head, only the member that let the request pass keeps running.

use super::prelude::*;
use serde_json::Value;
use weir_filter::config::schema::FilterNode;
use weir_filter::config::spelling::nearest_name;
use weir_filter::config::{Diagnostics, Node, de};
use weir_filter::error::INTERNAL;
use weir_filter::filter::{Built, Judged, Settings};
use weir_h1::FieldName;

/// The filter, for the registry.
pub static KIND: FilterKind = FilterKind {
    name: "any",
    schema: || schemars::schema_for!(AnySettings),
    causes: &[],
    access: Access::Decides,
    lists: &[],
    index: None,
    judged: Judged::ByMembers,
    build,
};

/// Combines several filters that identify the caller: a request passes as soon as one of them accepts it.
///
/// Members are asked in the order written; the first that accepts decides who calls. If none accepts, the client gets
/// the refusal of wrong credentials. If there were none, it gets the redirect to log in; otherwise, the challenges of
/// all members. Fields that the other members would have set are removed from the request, so clients cannot forge
/// them. A key in the query is removed only by the member that accepts it. Only the last member may have
/// `optional: true`: a request without any credentials then passes unnamed, but one with wrong credentials does not.
///
/// `ip` may be a member beside these filters: an address that it lets pass needs no credentials, even if the request has
/// wrong ones. Such a request has no consumer. Put `ip` last if callers with credentials are to be named wherever they
/// call from. An address that it refuses may still pass by another member, and if none accepts, the client gets their
/// refusal: it is never told that its address would have to be another.
///
/// ```yaml
/// - any: [ { key_auth: { header: apikey } }, { key_auth: { header: authorization, scheme: Bearer } } ]
/// - any: [ { basic_auth: {} }, { ip: { allow: [ 10.0.0.0/8 ] } } ]
/// ```
#[derive(JsonSchema)]
#[expect(dead_code, reason = "it stands for what is read by hand, in the schema and the manual")]
struct AnySettings(Vec<FilterNode>);

struct Any {
    members: Vec<Member>,
    hooks: Hooks,
}

struct Member {
    filter: Box<dyn Filter>,
    /// It judges the address alone and names nobody.
    by_address: bool,
    hooks: Hooks,
    /// The request fields that only this member may set, except Cookie, which carries unrelated values too.
    guarded: Vec<FieldName>,
}

/// How far the members have decided in an exchange.
#[derive(Default)]
struct Standing {
    /// The member that is waiting, or the one that let the request pass.
    at: usize,
    passed: bool,
    /// How many members were asked.
    asked: usize,
    /// The caller as known before any member was asked. What a member sets is discarded if it refuses after all.
    caller: Caller,
    /// The best refusal so far.
    refused: Option<Refused>,
    /// Whether a member asked for the whole body: the other members then see no pieces of it.
    whole: bool,
}

enum Refused {
    /// The address is not enough. The members that ask for credentials say what else is.
    Address(Box<Refusal>),
    /// The request had no credentials.
    Missing(Box<Refusal>),
    /// The member answers the client itself, for example with a redirect to log in.
    Answer(Box<Answer>),
    /// The credentials were wrong.
    Wrong(Box<Refusal>),
}

/// Most members.
const MAX_MEMBERS: usize = 16;

/// The filter that judges by the address alone.
const ADDRESS: &str = "ip";

// === Building ===

fn build(settings: &mut Settings<'_>, build: &mut Build<'_>) -> Option<Built> {
    let Settings { node, path, found } = settings;
    let before = (found.errors(), build.mistakes.len());
    let written = de::read::<Vec<FilterNode>>(node, path, found)?;
    if written.len() < 2 && before.0 == found.errors() {
        let hint = "write any: [ { jwt: { .. } }, { key_auth: {} } ]";
        build.refuse("", "needs two filters at least", Some(hint.into()));
    }
    if written.len() > MAX_MEMBERS {
        build.refuse("", format!("has more than {MAX_MEMBERS} filters"), None);
    }
    let last = written.len().saturating_sub(1);
    let (mut members, mut settings) = (Vec::new(), Vec::new());
    for (index, filter) in written.iter().enumerate() {
        let place = format!("[{index}].{}", filter.shown);
        let optional = filter.node.get("optional").and_then(Node::as_text) == Some("true");
        if optional && index < last {
            let message = "lets requests without credentials pass before the later filters run";
            let hint = Some("write it on the last one, where it counts for all".into());
            build.refuse(&format!("{place}.optional"), message, hint);
        }
        let Some(built) = build_one(filter, &place, found, build) else { continue };
        let FieldGuards { mut request, .. } = built.filter.guards();
        request.retain(|name| !name.as_str().eq_ignore_ascii_case("cookie"));
        let hooks = built.filter.hooks();
        settings.push(serde_json::json!({ filter.name.as_str(): built.settings }));
        let by_address = filter.name.as_str() == ADDRESS;
        members.push(Member { filter: built.filter, by_address, hooks, guarded: request });
    }
    if (found.errors(), build.mistakes.len()) == before && members.iter().all(|member| member.by_address) {
        let hint = "write one `ip` with all networks, in place of `any`";
        build.refuse("", "has no filter that identifies callers", Some(hint.into()));
    }
    if (found.errors(), build.mistakes.len()) != before {
        return None;
    }
    let hooks = members.iter().fold(Hooks::REQUEST, |hooks, member| hooks | member.hooks);
    Some(Built { filter: Box::new(Any { members, hooks }), settings: Value::Array(settings) })
}

fn build_one(
    written: &FilterNode,
    place: &str,
    found: &mut Diagnostics,
    build: &mut Build<'_>,
) -> Option<Built> {
    let fits =
        |kind: &&&FilterKind| kind.name.ends_with("_auth") || matches!(kind.name, ADDRESS | "jwt" | "oidc");
    let Some(kind) = build.kinds.iter().find(|kind| kind.name == written.name) else {
        let known = build.kinds.iter().filter(fits).map(|kind| kind.name);
        let hint = match nearest_name(&written.name, known.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("expected one of: {}", known.collect::<Vec<_>>().join(", ")),
        };
        build.refuse(place, format!("there is no filter `{}`", written.shown), Some(hint.into()));
        return None;
    };
    if !fits(&kind) {
        let hint = Some("put it before or after `any`".into());
        build.refuse(place, format!("`{}` does not identify callers", written.shown), hint);
        return None;
    }
    let kind = *kind;
    let (name, settings) = (build.kind, std::mem::take(&mut build.settings));
    let (before, warned, errors) = (build.mistakes.len(), build.warnings.len(), found.errors());
    build.kind = kind.name;
    let built = (kind.build)(&mut Settings { node: &written.node, path: &written.path, found }, build);
    (build.kind, build.settings) = (name, settings);
    let warnings = build.warnings.iter_mut().skip(warned).map(|(_, warning)| warning);
    for mistake in build.mistakes.iter_mut().skip(before).chain(warnings) {
        let dot = if mistake.field.is_empty() { "" } else { "." };
        mistake.field = format!("{place}{dot}{}", mistake.field);
    }
    if built.is_none() && build.mistakes.len() == before && found.errors() == errors {
        build.refuse(place, "the filter refused its settings", None);
    }
    built
}

// === Running ===

impl Filter for Any {
    fn hooks(&self) -> Hooks {
        self.hooks
    }

    fn guards(&self) -> FieldGuards {
        let mut all = FieldGuards::default();
        for member in &self.members {
            let FieldGuards { request, response } = member.filter.guards();
            all.request.extend(request);
            all.response.extend(response);
        }
        all
    }

    fn credentials(&self) -> Vec<FieldName> {
        self.members.iter().flat_map(|member| member.filter.credentials()).collect()
    }

    fn conceals(&self) -> Conceals {
        self.members.iter().map(|member| member.filter.conceals()).fold(Conceals::default(), Conceals::and)
    }

    fn request_body(&self, head: &RequestHead, cx: &mut Cx) -> BodyUse {
        let uses = self.members.iter().enumerate().filter(|(_, m)| m.hooks.has(Hooks::REQUEST_BODY));
        let all = uses.fold(BodyUse::Pass, |all, (at, member)| {
            let own = cx.member(at, |cx| member.filter.request_body(head, cx));
            match (all, own) {
                (BodyUse::Whole(a), BodyUse::Whole(b)) => BodyUse::Whole(a.max(b)),
                (BodyUse::Whole(most), _) | (_, BodyUse::Whole(most)) => BodyUse::Whole(most),
                (BodyUse::Change, _) | (_, BodyUse::Change) => BodyUse::Change,
                (BodyUse::Watch, _) | (_, BodyUse::Watch) => BodyUse::Watch,
                _ => BodyUse::Pass,
            }
        });
        cx.state::<Standing>().whole = matches!(all, BodyUse::Whole(_));
        all
    }

    fn on_request(&self, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let caller = cx.caller();
        cx.state::<Standing>().caller = caller;
        cx.take_unnamed(); // an earlier filter may have set it
        self.ask_from(0, head, cx)
    }

    fn wait<'a>(&'a self, head: &'a mut RequestHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            loop {
                let at = cx.state::<Standing>().at;
                let Some(member) = self.members.get(at) else { return Flow::Continue };
                let outer = cx.enter(at);
                let flow = member.filter.wait(head, cx).await;
                cx.leave(outer);
                let decided = match self.judge(at, flow, cx) {
                    Some(passed) => self.decided(passed, head, cx),
                    None => self.ask_from(at + 1, head, cx),
                };
                if !matches!(decided, Flow::Wait) {
                    return decided;
                }
            }
        })
    }

    fn on_request_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        self.of_passed(Hooks::REQUEST_BODY, cx, |filter, cx| filter.on_request_body(piece, cx))
            .unwrap_or(Ok(()))
    }

    fn on_attempt(&self, head: &mut RequestHead, attempt: &Attempt<'_>, cx: &mut Cx) -> HookResult {
        self.of_passed(Hooks::ATTEMPT, cx, |filter, cx| filter.on_attempt(head, attempt, cx))
            .unwrap_or(Ok(()))
    }

    fn on_attempt_end(&self, end: &AttemptEnd<'_>, cx: &mut Cx) {
        self.of_passed(Hooks::ATTEMPT, cx, |filter, cx| filter.on_attempt_end(end, cx));
    }

    fn response_body(&self, head: &ResponseHead, cx: &mut Cx) -> BodyUse {
        let own = self.of_passed(Hooks::RESPONSE_BODY, cx, |filter, cx| filter.response_body(head, cx));
        own.unwrap_or(BodyUse::Pass)
    }

    fn on_response(&self, head: &mut ResponseHead, cx: &mut Cx) -> Flow {
        let own = self.of_passed(Hooks::RESPONSE, cx, |filter, cx| filter.on_response(head, cx));
        own.unwrap_or(Flow::Continue)
    }

    fn wait_response<'a>(&'a self, head: &'a mut ResponseHead, cx: &'a mut Cx) -> Waiting<'a> {
        Box::pin(async move {
            let at = cx.state::<Standing>().at;
            let Some(member) = self.members.get(at) else { return Flow::Continue };
            let outer = cx.enter(at);
            let flow = member.filter.wait_response(head, cx).await;
            cx.leave(outer);
            flow
        })
    }

    fn on_response_body(&self, piece: &mut Piece<'_>, cx: &mut Cx) -> HookResult {
        self.of_passed(Hooks::RESPONSE_BODY, cx, |filter, cx| filter.on_response_body(piece, cx))
            .unwrap_or(Ok(()))
    }

    fn on_end(&self, end: &End, cx: &mut Cx) {
        let asked = cx.state::<Standing>().asked;
        for (at, member) in
            self.members.iter().enumerate().take(asked).filter(|(_, m)| m.hooks.has(Hooks::END))
        {
            cx.member(at, |cx| member.filter.on_end(end, cx));
        }
    }
}

impl Any {
    /// Asks the members from `from` on, until one decides or must wait.
    fn ask_from(&self, from: usize, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        for (at, member) in self.members.iter().enumerate().skip(from) {
            let standing = cx.state::<Standing>();
            (standing.at, standing.asked) = (at, at + 1);
            let flow = cx.member(at, |cx| member.filter.on_request(head, cx));
            if matches!(flow, Flow::Wait) {
                return Flow::Wait;
            }
            if let Some(passed) = self.judge(at, flow, cx) {
                return self.decided(passed, head, cx);
            }
        }
        match cx.state::<Standing>().refused.take() {
            Some(Refused::Answer(answer)) => Flow::Answer(answer),
            Some(Refused::Address(refusal) | Refused::Missing(refusal) | Refused::Wrong(refusal)) => {
                Flow::Refuse(refusal)
            }
            None => Flow::Continue, // at least one member exists, and it decided or its refusal was noted
        }
    }

    /// What a member's answer means: whether the request passes, or `None` to ask the next member.
    fn judge(&self, at: usize, flow: Flow, cx: &mut Cx) -> Option<Result<usize, Box<Refusal>>> {
        let unnamed = cx.take_unnamed();
        let by_address = self.members.get(at).is_some_and(|member| member.by_address);
        let standing = cx.state::<Standing>();
        let word = match flow {
            Flow::Continue => {
                // This member saw no credentials. If another found some wrong, that refusal stands.
                return Some(match standing.refused.take() {
                    Some(Refused::Wrong(refusal)) if unnamed => Err(refusal),
                    _ => Ok(at),
                });
            }
            Flow::Answer(answer) => Refused::Answer(answer),
            // A member that has waited must decide, none asks for a body then, and none has lists of its own.
            Flow::Gather(_) | Flow::Run(_) | Flow::Wait => Refused::Wrong(Refusal::new(&INTERNAL)),
            Flow::Refuse(refusal) if by_address => Refused::Address(refusal),
            Flow::Refuse(refusal) if refusal.cause.no_credentials => Refused::Missing(refusal),
            Flow::Refuse(refusal) => Refused::Wrong(refusal),
        };
        standing.refused = Some(match standing.refused.take() {
            None => word,
            Some(before) => before.and(word),
        });
        let caller = standing.caller;
        cx.restore_caller(caller);
        None
    }

    /// Ends the search. Removes the fields that only members which did not accept the request may set.
    fn decided(&self, passed: Result<usize, Box<Refusal>>, head: &mut RequestHead, cx: &mut Cx) -> Flow {
        let at = match passed {
            Ok(at) => at,
            Err(refusal) => return Flow::Refuse(refusal),
        };
        cx.state::<Standing>().passed = true;
        let own = self.members.get(at).map(|member| &member.guarded[..]).unwrap_or_default();
        let others = self.members.iter().enumerate().filter(|(other, _)| *other != at);
        for name in others.flat_map(|(_, member)| &member.guarded).filter(|name| !own.contains(name)) {
            head.headers.remove(name);
        }
        match self.show_whole(cx) {
            Ok(()) => Flow::Continue,
            Err(refusal) => Flow::Refuse(refusal),
        }
    }

    /// If another member asked for the whole body, passes it in one piece to the member that accepted the request,
    /// because no other code will. Filters that identify the caller never change a body.
    fn show_whole(&self, cx: &mut Cx) -> HookResult {
        if !cx.state::<Standing>().whole {
            return Ok(());
        }
        let whole = cx.share_whole();
        self.on_request_body(&mut Piece::new(&whole, true), cx)
    }

    /// Runs a hook of the member that let the request pass.
    fn of_passed<T>(
        &self,
        hook: Hooks,
        cx: &mut Cx,
        run: impl FnOnce(&dyn Filter, &mut Cx) -> T,
    ) -> Option<T> {
        let standing = cx.state::<Standing>();
        let at = standing.at;
        let member = self.members.get(at).filter(|member| standing.passed && member.hooks.has(hook))?;
        Some(cx.member(at, |cx| run(&*member.filter, cx)))
    }
}

impl Refused {
    /// The better of two refusals: wrong credentials, then a redirect to log in, then all challenges, then the address.
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Address(_), other) => other,
            (first, Self::Address(_)) => first,
            // A member that could not decide might have accepted the request: the client is not at fault.
            (Self::Wrong(first), Self::Wrong(other)) if other.cause.status >= 500 => {
                Self::Wrong(if first.cause.status >= 500 { first } else { other })
            }
            (Self::Wrong(first), _) => Self::Wrong(first),
            (_, Self::Wrong(other)) => Self::Wrong(other),
            (Self::Answer(first), _) => Self::Answer(first),
            (_, Self::Answer(other)) => Self::Answer(other),
            (Self::Missing(mut first), Self::Missing(other)) => {
                for field in other.headers {
                    if !first.headers.contains(&field) {
                        first.headers.push(field);
                    }
                }
                Self::Missing(first)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Exchange, Stand};
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn stand(settings: Value) -> Stand {
        let credentials = BTreeMap::from([("key_auth".to_owned(), vec!["good".to_owned()])]);
        let shop = Consumer { name: "shop".to_owned(), credentials, ..Consumer::default() };
        Stand::new(&KIND, settings).kinds(crate::KINDS).upstream("auth").consumer(shop)
    }

    fn two() -> Value {
        json!([
            { "key_auth": { "header": "x-a", "consumer_header": "x-who" } },
            { "key_auth": { "header": "authorization", "scheme": "Bearer" } }
        ])
    }

    async fn ask(settings: Value, fields: &str) -> Exchange {
        stand(settings).build().request(&format!("GET /\n{fields}")).await
    }

    #[tokio::test]
    async fn the_first_that_is_satisfied_decides() {
        ask(two(), "x-a: good\nx-who: root").await.expect_continue().expect_header("x-who", "shop");
        let mut second = ask(two(), "authorization: Bearer good\nx-who: root\nx-b: 1").await;
        second.expect_continue().expect_no_header("x-who").expect_header("x-b", "1");
        assert_eq!(second.cx.consumer().map(|c| c.name.as_str()), Some("shop"));
        ask(two(), "x-a: bad\nauthorization: Bearer good").await.expect_continue().expect_no_header("x-a");
    }

    #[tokio::test]
    async fn where_none_is_the_worst_is_told() {
        let mut none = ask(two(), "").await;
        none.expect_status(401);
        assert_eq!(none.header("www-authenticate"), ["ApiKey realm=\"weir\"", "Bearer realm=\"weir\""]);
        for wrong in ["x-a: bad", "authorization: Bearer bad", "x-a: bad\nauthorization: Bearer worse"] {
            let mut wrong = ask(two(), wrong).await;
            let Flow::Refuse(refusal) = &wrong.flow else { panic!("{:?}", wrong.flow) };
            assert_eq!(refusal.cause.code, "key_unknown");
            wrong.expect_status(401);
        }
    }

    #[tokio::test]
    async fn the_last_may_be_optional() {
        let settings = json!([
            { "key_auth": { "header": "x-a", "consumer_header": "x-who" } },
            { "key_auth": { "header": "x-b", "optional": true } }
        ]);
        let mut none = ask(settings.clone(), "x-who: root").await;
        none.expect_continue().expect_no_header("x-who");
        assert!(none.cx.consumer().is_none());
        ask(settings.clone(), "x-a: bad").await.expect_status(401);
        ask(settings.clone(), "x-b: bad").await.expect_status(401);
        ask(settings, "x-a: bad\nx-b: good").await.expect_continue();
    }

    /// An optional member that was satisfied without naming a consumer has seen credentials. One that saw none has
    /// not, even if an earlier filter named a consumer.
    #[tokio::test]
    async fn what_an_optional_one_let_pass_was_there_or_was_not() {
        let secret = b"01234567890123456789012345678901";
        let signed = [&br#"{"alg":"HS256"}"#[..], br#"{"exp":99999999999}"#]
            .map(weir_wire::base64::encode_url)
            .join(".");
        let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, secret);
        let tag = aws_lc_rs::hmac::sign(&key, signed.as_bytes());
        let token = format!("{signed}.{}", weir_wire::base64::encode_url(tag.as_ref()));
        let jwt = json!({ "jwt": { "secret": "01234567890123456789012345678901", "optional": true } });
        let settings = json!([{ "key_auth": {} }, jwt]);
        let with_token = format!("x-api-key: bad\nauthorization: Bearer {token}");
        ask(settings.clone(), &with_token).await.expect_continue();
        let named = stand(settings.clone()).named().build();
        named.request("GET /\nx-api-key: bad").await.expect_status(401);
        named.request("GET /").await.expect_continue();
    }

    #[tokio::test]
    async fn who_is_not_logged_in_has_no_credentials() {
        let oidc = json!({
            "issuer": "https://idp.example", "client_id": "a", "client_secret": "b", "redirect": "https://a.example/cb"
        });
        let settings = |optional: bool| json!([{ "oidc": oidc }, { "key_auth": { "optional": optional } }]);
        ask(settings(true), "").await.expect_continue();
        ask(settings(true), "x-api-key: bad").await.expect_status(401);
        let mut none = ask(settings(false), "").await;
        none.expect_status(401).expect_header("www-authenticate", "ApiKey realm=\"weir\"");
    }

    #[tokio::test]
    async fn a_member_may_wait() {
        let settings = json!([
            { "key_auth": {} },
            { "forward_auth": { "upstream": "auth", "copy": ["x-user"] } },
            { "key_auth": { "header": "x-b" } }
        ]);
        let answer = |status| {
            let user = (FieldName::new("x-user").unwrap(), b"ann".to_vec());
            Ok(CallAnswer { status, headers: vec![user], body: Bytes::new() })
        };
        let mut asked = stand(settings.clone()).answer(answer(204));
        asked.build().request("GET /\nx-user: root").await.expect_continue().expect_header("x-user", "ann");
        let mut third = stand(settings.clone()).answer(answer(401));
        third
            .build()
            .request("GET /\nx-user: root\nx-b: good")
            .await
            .expect_continue()
            .expect_no_header("x-user");
        // Wrong credentials take precedence over a redirect to log in.
        let mut told = stand(settings.clone()).answer(answer(302));
        told.build().request("GET /").await.expect_status(302);
        let mut told = stand(settings.clone()).answer(answer(302));
        told.build().request("GET /\nx-b: bad").await.expect_status(401);
        for (fields, status) in [("x-b: good", None), ("x-b: bad", Some(503)), ("", Some(503))] {
            let mut down = stand(settings.clone()).answer(Err(&weir_filter::error::CONNECT_REFUSED));
            let mut exchange = down.build().request(&format!("GET /\n{fields}")).await;
            match status {
                None => exchange.expect_continue(),
                Some(status) => exchange.expect_status(status),
            };
        }
    }

    /// A consumer that is named and then refused is not recorded as the caller.
    #[tokio::test]
    async fn a_consumer_that_may_not_call_from_here_does_not_pass_unnamed() {
        let credentials = BTreeMap::from([("key_auth".to_owned(), vec!["bound".to_owned()])]);
        let allow_ips = vec!["10.0.0.0/8".parse().unwrap()];
        let bound = Consumer {
            name: "bound".to_owned(),
            credentials,
            allow_ips: allow_ips.into(),
            ..Consumer::default()
        };
        let settings = json!([{ "key_auth": {} }, { "key_auth": { "header": "x-b", "optional": true } }]);
        let running = stand(settings).consumer(bound).build();
        let mut exchange = running.request("GET /\nx-api-key: bound").await;
        exchange.expect_status(403);
        assert!(exchange.cx.consumer().is_none());
    }

    #[test]
    fn mistakes() {
        for (settings, expected) in [
            (json!([]), "needs two filters"),
            (json!([{ "key_auth": {} }]), "needs two filters"),
            (json!([{ "key_auth": {} }, { "kye_auth": {} }]), "did you mean `key_auth`?"),
            (
                json!([{ "key_auth": {} }, { "acl": { "allow": ["shop"] } }]),
                "[1].acl: `acl` does not identify callers",
            ),
            (
                json!([{ "key_auth": { "optional": true } }, { "key_auth": {} }]),
                "[0].key_auth.optional: lets requests",
            ),
            (json!([{ "key_auth": {} }, { "key_auth": { "query": "" } }]), "[1].key_auth.query: is empty"),
            (json!([{ "key_auth": { "heder": "a" } }, { "key_auth": {} }]), "heder"),
            (json!({ "key_auth": {} }), "not a list"),
        ] {
            let told = stand(settings).mistakes().join("\n");
            assert!(told.contains(expected), "{told}");
        }
    }
}
