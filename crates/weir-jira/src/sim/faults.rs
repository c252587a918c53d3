//! Selects the fault of a request, and applies it to the answer.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::wire::{Delivery, Request, Response};

/// Names of all faults.
pub const FAULTS: &[&str] = &[
    "400",
    "401",
    "401-html",
    "403",
    "403-captcha",
    "409",
    "413",
    "429",
    "500",
    "500-after",
    "502-html",
    "503",
    "503-after",
    "conflict",
    "deep",
    "drip",
    "dup",
    "empty-object",
    "empty-page",
    "endless",
    "expired-token",
    "garbage-gzip",
    "garbage-html",
    "garbage-json",
    "garbage-utf8",
    "gone",
    "huge",
    "missing",
    "missing-token",
    "odd",
    "repeat-page",
    "repeat-token",
    "reset-after",
    "reset-before",
    "reset-during",
    "short-page",
    "shrink-total",
    "slow",
    "stale",
    "truncate",
];

/// A fault with its settings; [`FAULTS`] has the names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Fault {
    pub(super) name: String,
    /// `Retry-After` of 429 and 503: seconds, a date, or nothing.
    retry_after: Option<String>,
    /// `RateLimit-Reason` of 429.
    reason: Option<String>,
    /// Bytes of the body that `truncate` and `reset-during` send.
    bytes: usize,
    /// Delay of `slow` in milliseconds.
    ms: u64,
    /// Field that another user sets in `conflict`; default `summary`.
    field: Option<String>,
    /// The value of that field.
    value: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Match {
    method: Option<String>,
    /// A path; `*` matches one segment.
    path: Option<String>,
    /// The first matching request with the fault, counted from 1.
    nth: u64,
    /// Interval of further faults, in matching requests; 0: every request.
    every: u64,
    /// Limit on the number of faults; 0: no limit.
    count: u64,
    /// Probability of the fault in thousandths, drawn from the generator of the rule; 0: always.
    chance: u64,
    /// Seed of the generator.
    seed: u64,
}

/// A rule of `POST /_sim/faults`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Rule {
    #[serde(rename = "match")]
    condition: Match,
    fault: Fault,
    #[serde(skip)]
    seen: u64,
    #[serde(skip)]
    applied: u64,
}

impl Rule {
    /// Fails if the fault does not exist.
    pub(super) fn check(self) -> Result<Self, String> {
        if self.fault.exists() {
            return Ok(self);
        }
        Err(self.fault.unknown())
    }

    /// The next number of the generator (splitmix64).
    fn next_random(&mut self) -> u64 {
        self.condition.seed = self.condition.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.condition.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Whether the next matching request gets the fault.
    fn applies(&mut self, request: &Request) -> bool {
        let method = self.condition.method.as_ref();
        let path = self.condition.path.as_ref();
        if method.is_some_and(|method| !method.eq_ignore_ascii_case(&request.method))
            || path.is_some_and(|path| !matches_path(path, &request.path))
        {
            return false;
        }
        self.seen += 1;
        let first = self.condition.nth.max(1);
        let due = self.seen >= first
            && (self.condition.every == 0
                || (self.seen - first).is_multiple_of(self.condition.every));
        let left = self.condition.count == 0 || self.applied < self.condition.count;
        let due = due
            && (self.condition.chance == 0 || self.next_random() % 1000 < self.condition.chance);
        self.applied += u64::from(due && left);
        due && left
    }
}

fn matches_path(pattern: &str, path: &str) -> bool {
    let (mut wanted, mut found) = (pattern.split('/'), path.split('/'));
    loop {
        match (wanted.next(), found.next()) {
            (None, None) => return true,
            (Some(a), Some(b)) if a == "*" || a == b => {}
            _ => return false,
        }
    }
}

/// The fault of a request: that of its header, or of the first matching rule.
pub(super) fn choose(rules: &mut [Rule], request: &Request) -> Option<Fault> {
    if let Some(name) = request.header("x-sim-fault") {
        return Some(Fault {
            name: name.to_owned(),
            ..Fault::default()
        });
    }
    let rule = rules
        .iter_mut()
        .find_map(|rule| rule.applies(request).then(|| rule.fault.clone()));
    rule.filter(|_| !request.path.starts_with("/_sim/"))
}

impl Fault {
    fn exists(&self) -> bool {
        FAULTS.contains(&self.name.as_str())
    }

    /// The error for a name that no fault has.
    fn unknown(&self) -> String {
        let all = FAULTS.join(", ");
        format!("there is no fault {:?}; one of: {all}", self.name)
    }

    /// The answer that replaces the execution of the request, if the fault has one.
    pub(super) fn replacement(&self) -> Option<Response> {
        let html = b"<html><body>Something went wrong</body></html>".to_vec();
        let messages = |text: &str| {
            json!({"errorMessages": [text], "errors": {}})
                .to_string()
                .into_bytes()
        };
        let (status, body) = match self.name.as_str() {
            "429" => (429, messages("Rate limit exceeded.")),
            "401" => (
                401,
                messages("Client must be authenticated to access this resource."),
            ),
            "401-html" => (401, html),
            "403-captcha" => (403, html),
            "500" => (500, messages("Internal server error")),
            "502-html" => (502, html),
            "503" => (503, Vec::new()),
            "gone" => (
                410,
                messages("The requested API has been removed. Use /rest/api/3/search/jql"),
            ),
            "400" => (
                400,
                json!({"errorMessages": [], "errors": {"summary": "Field 'summary' cannot be set."}})
                    .to_string()
                    .into_bytes(),
            ),
            "403" => (403, messages("You do not have permission to edit this issue.")),
            "413" => (413, messages("The request is too large.")),
            "409" => (409, messages("The issue was changed meanwhile.")),
            "garbage-html" => (200, html),
            _ if !self.exists() => (400, messages(&self.unknown())),
            _ => return None,
        };
        let mut headers = vec![("Content-Type", "application/json".to_owned())];
        if self.name.ends_with("html") || self.name == "403-captcha" {
            headers = vec![("Content-Type", "text/html".to_owned())];
        }
        if self.name == "403-captcha" {
            headers.push((
                "X-Authentication-Denied-Reason",
                "CAPTCHA_CHALLENGE".to_owned(),
            ));
        }
        headers.extend(self.retry_after.clone().map(|value| ("Retry-After", value)));
        headers.extend(self.reason.clone().map(|value| ("RateLimit-Reason", value)));
        Some(Response {
            status,
            headers,
            body,
        })
    }

    /// The answer that replaces that of the executed request.
    pub(super) fn afterwards(&self) -> Option<Response> {
        let status = match self.name.as_str() {
            "500-after" => 500,
            "503-after" => 503,
            _ => return None,
        };
        let headers = vec![("Content-Type", "text/html".to_owned())];
        Some(Response {
            status,
            headers,
            body: b"<html>Service Unavailable</html>".to_vec(),
        })
    }

    /// The field and the value that another user sets in `conflict`.
    pub(super) fn change_of_others(&self) -> (String, Value) {
        let field = self.field.clone().unwrap_or_else(|| "summary".to_owned());
        let value = self.value.clone();
        (
            field,
            value.unwrap_or_else(|| "changed by somebody else".into()),
        )
    }

    /// Delay before the request is executed.
    pub(super) fn delay(&self) -> Option<Duration> {
        (self.name == "slow").then(|| Duration::from_millis(self.ms))
    }

    /// Damages the bytes of an answer.
    pub(super) fn damage_bytes(&self, response: &mut Response) {
        match self.name.as_str() {
            "empty-object" => response.body = b"{}".to_vec(),
            "garbage-json" => response.body = b"{\"issues\": [".to_vec(),
            "garbage-utf8" => response.body = b"{\"issues\": \"\xff\xfe\"}".to_vec(),
            "garbage-gzip" => {
                response
                    .headers
                    .push(("Content-Encoding", "gzip".to_owned()));
            }
            _ => {}
        }
    }

    /// How the answer is transmitted.
    pub(super) fn delivery(&self) -> Delivery {
        let mut delivery = Delivery::default();
        match self.name.as_str() {
            "truncate" => delivery.close_after = Some(self.bytes),
            "reset-during" => delivery.reset_after = Some(self.bytes.max(1)),
            "endless" => delivery.endless = true,
            "drip" => delivery.drip = Some(Duration::from_millis(self.ms)),
            _ => {}
        }
        delivery
    }

    /// Changes the issues of an answer.
    pub(super) fn change_issues(&self, issues: &mut Vec<Value>) {
        match self.name.as_str() {
            "missing" => {
                issues.pop();
            }
            "dup" => issues.extend(issues.last().cloned()),
            "huge" => {
                if let Some(issue) = issues.first_mut() {
                    issue["fields"]["description"] = super::world::document(&"x".repeat(10 << 20));
                }
            }
            "deep" => {
                if let Some(issue) = issues.first_mut() {
                    let mut content = super::world::document("innermost")["content"].clone();
                    for _ in 0..35 {
                        let item = json!({"type": "listItem", "content": content});
                        content = json!([{"type": "bulletList", "content": [item]}]);
                    }
                    issue["fields"]["description"]["content"] = content;
                }
            }
            "odd" => issues.iter_mut().for_each(make_unusual),
            "stale" => issues.iter_mut().for_each(|issue| {
                issue["fields"]["summary"] = "a stale version".into();
                issue["fields"]["updated"] = "2001-01-01T00:00:00.000+0000".into();
            }),
            _ => {}
        }
    }
}

/// Gives an issue unusual forms that Jira sometimes sends.
fn make_unusual(issue: &mut Value) {
    let fields = &mut issue["fields"];
    fields["priority"] = Value::Null;
    fields["assignee"] = json!({"accountId": "unknown", "displayName": null, "active": false});
    fields["customfield_99999"] = json!({"nested": [1, "2", null]});
    fields["comment"] = Value::Null;
    fields["timeestimate"] = "3600".into();
    fields["description"] = json!({"type": "doc", "version": 1, "content": [
        {"type": "hologram", "attrs": {"depth": 3}, "content": [{"type": "text", "text": "odd"}]}]});
}
