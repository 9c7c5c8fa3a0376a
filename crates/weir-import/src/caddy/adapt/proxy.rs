//! Directives that send requests to another server: `reverse_proxy`, `forward_auth`, `php_fastcgi`.

use super::super::model::{Ask, Kind};
use super::super::proxy::Draft;
use super::super::syntax::Segment;
use super::super::values::{op, op_refusal, withheld};
use super::super::verdicts::Judged;
use super::Adapter;

impl Adapter<'_> {
    pub(super) fn forward_auth(&mut self, segment: &Segment, args: &[&str]) -> Kind {
        let mut draft = Draft::default();
        let mut ask_uri = String::new();
        let mut copy = Vec::new();
        for arg in args {
            draft.upstream(arg).enter(segment.piece, self.ledger);
        }
        for line in segment.inner() {
            match line.name() {
                "uri" => {
                    ask_uri = line.args().first().copied().unwrap_or_default().to_owned();
                    self.ledger.same(line.piece);
                }
                "copy_headers" => {
                    let mut fields: Vec<String> = line.args().iter().map(|arg| (*arg).to_owned()).collect();
                    for inner in line.inner() {
                        self.ledger.same(inner.piece);
                        let words: Vec<&str> = inner.words.iter().map(|word| &*word.text).collect();
                        fields.push(words.join(""));
                    }
                    for field in fields {
                        let (from, to) = field.split_once('>').unwrap_or((&field, &field));
                        copy.push((from.to_ascii_lowercase(), to.to_ascii_lowercase()));
                    }
                    self.ledger.same(line.piece);
                }
                _ => self.proxy_line(&mut draft, line),
            }
        }
        Kind::Ask(Box::new(Ask { proxy: draft.finish(), uri: ask_uri, copy }))
    }

    pub(super) fn proxy(&mut self, segment: &Segment, args: &[&str]) -> Kind {
        let mut draft = Draft::default();
        for arg in args {
            draft.upstream(arg).enter(segment.piece, self.ledger);
        }
        for line in segment.inner() {
            self.proxy_line(&mut draft, line);
        }
        Kind::Proxy(Box::new(draft.finish()))
    }

    fn proxy_line(&mut self, draft: &mut Draft, line: &Segment) {
        let args: Vec<String> = line.args().iter().map(|arg| (*arg).to_owned()).collect();
        let words: Vec<&str> = args.iter().map(String::as_str).collect();
        let judged = match line.name() {
            "to" => {
                for arg in &args {
                    draft.upstream(arg).enter(line.piece, self.ledger);
                }
                return;
            }
            "lb_policy" => match args.split_first() {
                Some((name, rest)) => {
                    for inner in line.inner() {
                        self.ledger.left_out(inner.piece, "Weir falls back to the same balancer");
                    }
                    draft.policy(name, rest)
                }
                None => Judged::refused("it names no policy", "`balancer`"),
            },
            "header_up" => match (op_refusal(&words), op(&words)) {
                (Some(why), _) => {
                    draft.proxy.request.extend(withheld(&words));
                    Judged::refused(why, "`headers.request.set` with an expression")
                }
                (None, Some(op)) => draft.header_up(op),
                (None, None) => Judged::refused("it names no field", "`headers.request`"),
            },
            "header_down" => match (op_refusal(&words), op(&words)) {
                (Some(why), _) => Judged::refused(why, "`headers.response.set` with an expression"),
                (None, Some(op)) => {
                    draft.proxy.response.push(op);
                    Judged::Same
                }
                (None, None) => Judged::refused("it names no field", "`headers.response`"),
            },
            "rewrite" => {
                draft.proxy.rewrite = args.first().cloned();
                Judged::Same
            }
            "method" => Judged::refused("Weir changes no methods", "an upstream that takes this method"),
            "dynamic" => {
                self.below(line, |_, _| Judged::left_out("it belongs to `dynamic`"));
                match args.first().map(String::as_str) {
                    Some("a") if args.len() >= 3 => {
                        let judged = draft.upstream(&format!("{}:{}", args[1], args[2]));
                        if judged == Judged::Same {
                            Judged::by_itself(
                                "each address of a name is an endpoint, and names are asked again",
                            )
                        } else {
                            judged
                        }
                    }
                    _ => draft.close("upstreams that are found by a module", "`discover`"),
                }
            }
            "transport" => match args.first().map(String::as_str) {
                Some("fastcgi") => {
                    let _ = draft.fastcgi("index", &["index.php".to_owned()]);
                    self.below(line, |name, args| draft.fastcgi(name, args));
                    Judged::Same
                }
                Some("http") | None => {
                    self.below(line, |name, args| draft.transport(name, args));
                    Judged::Same
                }
                Some(other) => {
                    self.refuse_below(line);
                    draft.close(&format!("Weir knows no transport `{other}`"), "`upstreams.NAME.protocol`")
                }
            },
            "handle_response" | "replace_status" => {
                self.refuse_below(line);
                Judged::refused(
                    "Weir does not run routes on an upstream's answer",
                    "the filter `errors` with `upstream`, or `headers.response`",
                )
            }
            name if name.starts_with('@') => {
                self.refuse_below(line);
                Judged::refused(
                    "it matches answers for `handle_response`",
                    "the filter `errors` with `upstream`",
                )
            }
            "trusted_proxies" => Judged::changed(
                "Weir trusts these networks for all routes: set `trusted_proxies` at the top level",
            ),
            name => draft.setting(name, &args),
        };
        judged.enter(line.piece, self.ledger);
    }

    pub(super) fn php(&mut self, segment: &Segment, args: &[&str]) -> Kind {
        let mut draft = Draft::default();
        for arg in args {
            draft.upstream(arg).enter(segment.piece, self.ledger);
        }
        let _ = draft.fastcgi("index", &["index.php".to_owned()]);
        for line in segment.inner() {
            let args: Vec<String> = line.args().iter().map(|arg| (*arg).to_owned()).collect();
            match line.name() {
                "root"
                | "split"
                | "env"
                | "index"
                | "resolve_root_symlink"
                | "dial_timeout"
                | "read_timeout"
                | "write_timeout"
                | "capture_stderr"
                | "try_files" => {
                    draft.fastcgi(line.name(), &args).enter(line.piece, self.ledger);
                }
                _ => self.proxy_line(&mut draft, line),
            }
        }
        let mut proxy = draft.finish();
        if let Some(fastcgi) = &mut proxy.fastcgi {
            fastcgi.is_idiom = true;
        }
        Kind::Proxy(Box::new(proxy))
    }
}
