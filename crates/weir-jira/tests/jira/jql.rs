//! Compares the evaluators of JQL with a naive one, over generated issues and queries.
//!
//! The naive evaluator reads the facts from which an issue was generated, not its JSON. It has the
//! query as a tree, of which the evaluators under test get the text.

use std::cmp::{Ordering, Reverse};

use serde_json::{Value, json};
use weir::{Durability, OpenOptions, Weir};
use weir_jira::index::Index;
use weir_jira::jql::{Context, matches, parse};
use weir_jira::replica::Replica;
use weir_jira::{offline, time};

use crate::chaos::Random;

const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
const ISSUES: usize = 30;
const QUERIES: usize = 300;
/// 2024-11-29 10:44:51.887 UTC, a Friday.
const NOW: i64 = 1_732_877_091_887;
const DAY: i64 = 86_400_000;
const MINUTE: i64 = 60_000;
/// The zone of the account: GMT+05:30.
const ZONE: i64 = 19_800_000;
/// Index of the account in `PEOPLE`.
const ME: usize = 1;

/// Id, key and name.
const PROJECTS: [[&str; 3]; 3] = [
    ["100", "AA", "Alpha"],
    ["101", "AB", "Alphabet"],
    ["102", "A", "Größe"],
];
/// Id and name.
const KINDS: [[&str; 2]; 2] = [["11", "Bug"], ["12", "Task"]];
/// Id, name, key and name of the category.
const STATUSES: [[&str; 4]; 3] = [
    ["21", "To Do", "new", "Open"],
    ["22", "In Progress", "indeterminate", "Started"],
    ["23", "Done", "done", "Closed"],
];
/// Id and displayed name.
const PEOPLE: [[&str; 2]; 3] = [["u-0", "Zoe"], ["u-1", "Anna Berg"], ["u-2", "Émile"]];
const PRIORITIES: [[&str; 2]; 2] = [["31", "High"], ["32", "Low"]];
const RESOLUTIONS: [[&str; 2]; 2] = [["41", "Fixed"], ["42", "Won't do"]];
const COMPONENTS: [[&str; 2]; 3] = [["51", "core"], ["52", "Web site"], ["53", "docs"]];
const VERSIONS: [[&str; 2]; 2] = [["61", "1.0"], ["62", "1.1"]];
const LABELS: [&str; 4] = ["red", "Größe", "two-words", "RED2"];
const WORDS: [&str; 8] = [
    "printer", "print", "queue", "Größe", "empty", "x1", "Zug", "cache",
];
const POINTS: [f64; 4] = [0.5, 3.0, 10.0, 9.0];
const TEAMS: [[&str; 2]; 2] = [["71", "Blue"], ["72", "Red"]];

/// The facts about an issue.
#[derive(Debug)]
struct Facts {
    id: i64,
    project: usize,
    number: i64,
    kind: usize,
    status: usize,
    /// Assignee, reporter, creator.
    people: [Option<usize>; 3],
    priority: Option<usize>,
    resolution: Option<usize>,
    labels: Vec<usize>,
    components: Vec<usize>,
    versions: Vec<usize>,
    parent: Option<i64>,
    summary: Vec<usize>,
    description: Vec<usize>,
    comments: Vec<Vec<usize>>,
    created: i64,
    updated: i64,
    resolved: Option<i64>,
    /// Days since 1970-01-01.
    due: Option<i64>,
    points: Option<usize>,
    team: Option<usize>,
}

fn number(random: &mut Random, limit: i64) -> i64 {
    i64::try_from(random.below(usize::try_from(limit).unwrap())).unwrap()
}

fn chosen<'a, T>(random: &mut Random, all: &'a [T]) -> &'a T {
    &all[random.below(all.len())]
}

fn maybe(random: &mut Random, limit: usize) -> Option<usize> {
    (random.below(3) > 0).then(|| random.below(limit))
}

/// Up to `most` indexes below `limit`.
fn some(random: &mut Random, limit: usize, most: usize) -> Vec<usize> {
    let count = random.below(most + 1);
    (0..count).map(|_| random.below(limit)).collect()
}

/// Indexes below `limit`, each at most once.
fn subset(random: &mut Random, limit: usize) -> Vec<usize> {
    (0..limit).filter(|_| random.below(3) == 0).collect()
}

/// Year, month and day of a number of days since 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    let (mut year, mut left) = (1970, days);
    let is_leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    while left >= 365 + i64::from(is_leap(year)) {
        left -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + i64::from(is_leap(year));
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

fn day_text(days: i64, separator: char) -> String {
    let (year, month, day) = civil(days);
    format!("{year:04}{separator}{month:02}{separator}{day:02}")
}

fn words(of: &[usize]) -> String {
    let words: Vec<&str> = of.iter().map(|word| WORDS[*word]).collect();
    words.join(" ")
}

/// Rich text; each text node has up to two words.
fn document(of: &[usize]) -> Value {
    let nodes: Vec<Value> = of
        .chunks(2)
        .map(|part| json!({"type": "text", "text": words(part)}))
        .collect();
    json!({"type": "doc", "version": 1, "content": [{"type": "paragraph", "content": nodes}]})
}

impl Facts {
    fn generated(random: &mut Random, number_of_issue: usize) -> Self {
        let index = i64::try_from(number_of_issue).unwrap();
        let created = NOW - number(random, 60 * DAY);
        let resolved = (random.below(2) == 0).then(|| created + number(random, DAY));
        Self {
            id: 10_000 + index,
            project: random.below(PROJECTS.len()),
            number: index + 1,
            kind: random.below(KINDS.len()),
            status: random.below(STATUSES.len()),
            people: [0; 3].map(|_| maybe(random, PEOPLE.len())),
            priority: maybe(random, PRIORITIES.len()),
            resolution: maybe(random, RESOLUTIONS.len()),
            labels: subset(random, LABELS.len()),
            components: subset(random, COMPONENTS.len()),
            versions: subset(random, VERSIONS.len()),
            parent: (random.below(4) == 0).then(|| number(random, 20) + 1),
            summary: {
                let mut summary = some(random, WORDS.len(), 4);
                summary.push(random.below(WORDS.len()));
                summary
            },
            description: some(random, WORDS.len(), 3),
            comments: (0..random.below(3))
                .map(|_| some(random, WORDS.len(), 3))
                .collect(),
            created,
            updated: created + number(random, DAY),
            resolved,
            due: (random.below(2) == 0).then(|| NOW / DAY - 20 + number(random, 40)),
            points: maybe(random, POINTS.len()),
            team: maybe(random, TEAMS.len()),
        }
    }

    fn key(&self) -> String {
        format!("{}-{}", PROJECTS[self.project][1], self.number)
    }

    fn json(&self) -> Value {
        let named = |[id, name]: [&str; 2]| json!({"id": id, "name": name});
        let person = |of: Option<usize>| {
            of.map(|of| json!({"accountId": PEOPLE[of][0], "displayName": PEOPLE[of][1]}))
        };
        let [id, key, name] = PROJECTS[self.project];
        let status = STATUSES[self.status];
        let list = |of: &[usize], all: &[[&str; 2]]| -> Vec<Value> {
            of.iter().map(|at| named(all[*at])).collect()
        };
        let comments: Vec<Value> = self.comment_json();
        let mut fields = json!({
            "project": {"id": id, "key": key, "name": name},
            "issuetype": named(KINDS[self.kind]),
            "status": {"id": status[0], "name": status[1],
                "statusCategory": {"key": status[2], "name": status[3]}},
            "assignee": person(self.people[0]),
            "reporter": person(self.people[1]),
            "creator": person(self.people[2]),
            "priority": self.priority.map(|at| named(PRIORITIES[at])),
            "resolution": self.resolution.map(|at| named(RESOLUTIONS[at])),
            "labels": self.labels.iter().map(|at| LABELS[*at]).collect::<Vec<_>>(),
            "components": list(&self.components, &COMPONENTS),
            "fixVersions": list(&self.versions, &VERSIONS),
            "summary": words(&self.summary),
            "description": (!self.description.is_empty()).then(|| document(&self.description)),
            "comment": {"total": comments.len(), "comments": comments},
            "created": time::format(self.created),
            "updated": time::format(self.updated),
            "resolutiondate": self.resolved.map(time::format),
            "duedate": self.due.map(|days| day_text(days, '-')),
            "customfield_10": self.points.map(|at| POINTS[at]),
            "customfield_11": self.team.map(|at| json!({"id": TEAMS[at][0], "value": TEAMS[at][1]})),
        });
        if let Some(parent) = self.parent {
            fields["parent"] = json!({"id": (10_000 + parent).to_string(),
                "key": format!("{key}-{parent}")});
        }
        json!({"id": self.id.to_string(), "key": self.key(), "fields": fields})
    }

    fn comment_json(&self) -> Vec<Value> {
        let all = self.comments.iter().enumerate();
        all.map(|(at, text)| json!({"id": at.to_string(), "body": document(text)}))
            .collect()
    }

    /// All texts that are equal to a value of a field.
    fn values(&self, field: &str) -> Vec<String> {
        let of = |at: Option<usize>, all: &[[&str; 2]]| -> Vec<String> {
            at.into_iter()
                .flat_map(|at| all[at])
                .map(str::to_owned)
                .collect()
        };
        let each = |at: &[usize], all: &[[&str; 2]]| -> Vec<String> {
            at.iter()
                .flat_map(|at| all[*at])
                .map(str::to_owned)
                .collect()
        };
        match field {
            "project" => PROJECTS[self.project].map(str::to_owned).to_vec(),
            "issuetype" | "type" => of(Some(self.kind), &KINDS),
            "status" => STATUSES[self.status][..2]
                .iter()
                .map(|&text| text.to_owned())
                .collect(),
            "statuscategory" => {
                let names = &STATUSES[self.status][2..];
                let id = ["2", "4", "3"][self.status];
                let all = names.iter().chain([&id]);
                all.map(|&text| text.to_owned()).collect()
            }
            "assignee" => of(self.people[0], &PEOPLE),
            "reporter" => of(self.people[1], &PEOPLE),
            "creator" => of(self.people[2], &PEOPLE),
            "priority" => of(self.priority, &PRIORITIES),
            "resolution" => of(self.resolution, &RESOLUTIONS),
            "labels" => self
                .labels
                .iter()
                .map(|at| LABELS[*at].to_owned())
                .collect(),
            "component" => each(&self.components, &COMPONENTS),
            "fixversion" => each(&self.versions, &VERSIONS),
            "key" | "id" => vec![self.key(), self.id.to_string()],
            "parent" => {
                let key = |parent| format!("{}-{parent}", PROJECTS[self.project][1]);
                let both = self
                    .parent
                    .map(|parent| [key(parent), (10_000 + parent).to_string()]);
                both.into_iter().flatten().collect()
            }
            "cf[10]" => self
                .points
                .map(|at| POINTS[at].to_string())
                .into_iter()
                .collect(),
            "cf[11]" => of(self.team, &TEAMS),
            _ => unreachable!("{field}"),
        }
    }

    /// The words of a text field, in small letters.
    fn words(&self, field: &str) -> Vec<String> {
        let comments = self.comments.concat();
        let all = match field {
            "summary" => self.summary.clone(),
            "description" => self.description.clone(),
            "comment" => comments,
            _ => [self.summary.clone(), self.description.clone(), comments].concat(),
        };
        all.into_iter().map(|at| WORDS[at].to_lowercase()).collect()
    }

    fn time(&self, field: &str) -> Option<i64> {
        match field {
            "created" => Some(self.created),
            "updated" => Some(self.updated),
            "resolved" => self.resolved,
            _ => self.due.map(|days| days * DAY - ZONE),
        }
    }

    /// The order of two issues by a field; an empty field is first.
    fn compare(&self, other: &Self, field: &str) -> Ordering {
        let name = |at: Option<usize>, all: &[[&'static str; 2]]| at.map(|at| all[at][1]);
        let key = |facts: &Self| (PROJECTS[facts.project][1], facts.number);
        match field {
            "id" => self.id.cmp(&other.id),
            "key" => key(self).cmp(&key(other)),
            "project" => key(self).0.cmp(key(other).0),
            "summary" => words(&self.summary).cmp(&words(&other.summary)),
            "status" => STATUSES[self.status][1].cmp(STATUSES[other.status][1]),
            "assignee" => name(self.people[0], &PEOPLE).cmp(&name(other.people[0], &PEOPLE)),
            // The first one is the highest.
            "priority" => {
                let order = |facts: &Self| facts.priority.map(Reverse);
                order(self).cmp(&order(other))
            }
            "labels" => {
                let first = |facts: &Self| facts.labels.first().map(|at| LABELS[*at]);
                first(self).cmp(&first(other))
            }
            "cf[10]" => {
                let points = |facts: &Self| facts.points.map(|at| POINTS[at]);
                points(self).partial_cmp(&points(other)).unwrap()
            }
            _ => self.time(field).cmp(&other.time(field)),
        }
    }
}

/// A value of `=` and IN.
#[derive(Debug)]
enum Wanted {
    Text(String),
    Me,
    Empty,
}

#[derive(Debug)]
enum Clause {
    Is(&'static str),
    Same(&'static str, Vec<Wanted>),
    /// Words, each with whether it is a prefix.
    Contains(&'static str, Vec<(String, bool)>),
    /// A date field, an operator, the time, and its text.
    Time(&'static str, Operator, i64, String),
    /// `id`, `key` or `cf[10]`, an operator, and the bound.
    Number(&'static str, Operator, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
}

/// A query. A clause can be written in its negative form, such as `!=`.
#[derive(Debug)]
enum Node {
    And(Vec<Node>),
    Or(Vec<Node>),
    Not(Box<Node>),
    Leaf(Clause, bool),
}

impl Operator {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order == Ordering::Equal,
            Self::Greater => order == Ordering::Greater,
            Self::GreaterEqual => order != Ordering::Less,
            Self::Less => order == Ordering::Less,
            Self::LessEqual => order != Ordering::Greater,
        }
    }

    fn text(self, negative: bool) -> &'static str {
        match (self, negative) {
            (Self::Equal, false) => "=",
            (Self::Equal, true) => "!=",
            (Self::Greater, false) | (Self::LessEqual, true) => ">",
            (Self::GreaterEqual, false) | (Self::Less, true) => ">=",
            (Self::Less, false) | (Self::GreaterEqual, true) => "<",
            (Self::LessEqual, false) | (Self::Greater, true) => "<=",
        }
    }
}

impl Clause {
    /// Whether the clause is true for an issue; `None`: it is neither true nor false, because the
    /// field is empty, or cannot be compared with the value.
    fn truth(&self, facts: &Facts) -> Option<bool> {
        match self {
            Self::Is(field) => Some(match *field {
                "due" | "resolved" => facts.time(field).is_none(),
                "summary" | "description" | "comment" | "text" => facts.words(field).is_empty(),
                field => facts.values(field).is_empty(),
            }),
            Self::Same(field, wanted) => {
                let found = facts.values(field);
                if found.is_empty() {
                    let has_empty = wanted.iter().any(|one| matches!(one, Wanted::Empty));
                    return has_empty.then_some(true);
                }
                let equal = |wanted: &Wanted| {
                    let text = match wanted {
                        Wanted::Text(text) => text.as_str(),
                        Wanted::Me => PEOPLE[ME][0],
                        Wanted::Empty => return false,
                    };
                    let mut found = found.iter();
                    found.any(|one| one.to_lowercase() == text.to_lowercase())
                };
                Some(wanted.iter().any(equal))
            }
            Self::Contains(field, wanted) => {
                let found = facts.words(field);
                let has = |(wanted, is_prefix): &(String, bool)| {
                    let wanted = wanted.to_lowercase();
                    let mut found = found.iter();
                    found.any(|one| *one == wanted || (*is_prefix && one.starts_with(&wanted)))
                };
                (!found.is_empty()).then(|| wanted.iter().all(has))
            }
            Self::Time(field, operator, wanted, _) => {
                let found = facts.time(field)?;
                // A due date is compared with days.
                let wanted = match *field {
                    "due" => (wanted + ZONE).div_euclid(DAY) * DAY - ZONE,
                    _ => *wanted,
                };
                Some(if *operator == Operator::Equal {
                    found.div_euclid(MINUTE) == wanted.div_euclid(MINUTE)
                } else {
                    operator.holds(found.cmp(&wanted))
                })
            }
            Self::Number("key", operator, wanted) => {
                let (project, number) = wanted.split_once('-').unwrap();
                let same = project.to_lowercase() == PROJECTS[facts.project][1].to_lowercase();
                same.then(|| operator.holds(facts.number.cmp(&number.parse().unwrap())))
            }
            Self::Number("id", operator, wanted) => {
                Some(operator.holds(facts.id.cmp(&wanted.parse().unwrap())))
            }
            Self::Number(_, operator, wanted) => {
                let wanted: f64 = wanted.parse().unwrap();
                let points = POINTS[facts.points?];
                Some(operator.holds(points.partial_cmp(&wanted).unwrap()))
            }
        }
    }

    fn text(&self, negative: bool, random: &mut Random) -> String {
        match self {
            Self::Is(field) if negative => {
                format!("{} IS NOT {}", cased(field, random), empty(random))
            }
            Self::Is(field) => format!("{} is {}", cased(field, random), empty(random)),
            Self::Same(field, wanted) => {
                let field = cased(field, random);
                let values: Vec<String> = wanted.iter().map(|one| one.text(random)).collect();
                match (values.as_slice(), negative) {
                    ([one], false) if random.below(2) == 0 => format!("{field}={one}"),
                    ([one], true) if random.below(2) == 0 => format!("{field} != {one}"),
                    (all, false) => format!("{field} IN ({})", all.join(", ")),
                    (all, true) => format!("{field} not in({})", all.join(",")),
                }
            }
            Self::Contains(field, wanted) => {
                let word = |(word, is_prefix): &(String, bool)| {
                    format!("{word}{}", if *is_prefix { "*" } else { "" })
                };
                let words: Vec<String> = wanted.iter().map(word).collect();
                let sign = if negative { "!~" } else { "~" };
                format!("{} {sign} \"{}\"", cased(field, random), words.join(" "))
            }
            Self::Time(field, operator, _, text) => {
                format!(
                    "{} {} {text}",
                    cased(field, random),
                    operator.text(negative)
                )
            }
            Self::Number(field, operator, text) => {
                format!("{field} {} {text}", operator.text(negative))
            }
        }
    }
}

impl Wanted {
    fn text(&self, random: &mut Random) -> String {
        match self {
            Self::Me => "currentUser()".to_owned(),
            Self::Empty => empty(random).to_owned(),
            Self::Text(text) => {
                let plain = text
                    .chars()
                    .all(|c| c.is_alphanumeric() || matches!(c, '-' | '.'));
                match random.below(3) {
                    0 if plain => text.clone(),
                    1 if !text.contains('\'') => format!("'{text}'"),
                    _ => offline::quoted(text),
                }
            }
        }
    }
}

fn empty(random: &mut Random) -> &'static str {
    let texts = ["EMPTY", "null", "Empty"];
    texts[random.below(texts.len())]
}

/// The name of a field, in small or in mixed letters.
fn cased(field: &str, random: &mut Random) -> String {
    match (field, random.below(2)) {
        ("statuscategory", 0) => "statusCategory".to_owned(),
        ("fixversion", 0) => "fixVersion".to_owned(),
        (_, 0) => field.to_ascii_uppercase(),
        _ => field.to_owned(),
    }
}

impl Node {
    /// Whether the condition is true, or with `wanted` false, whether its negation is. As in Jira,
    /// a clause about an empty field is true in neither form.
    fn holds(&self, facts: &Facts, wanted: bool) -> bool {
        match self {
            Self::And(parts) if wanted => parts.iter().all(|part| part.holds(facts, true)),
            Self::And(parts) => parts.iter().any(|part| part.holds(facts, false)),
            Self::Or(parts) if wanted => parts.iter().any(|part| part.holds(facts, true)),
            Self::Or(parts) => parts.iter().all(|part| part.holds(facts, false)),
            Self::Not(part) => part.holds(facts, !wanted),
            Self::Leaf(clause, negative) => clause.truth(facts) == Some(wanted != *negative),
        }
    }

    fn text(&self, random: &mut Random) -> String {
        let mut joined = |parts: &[Self], word: &str| {
            let parts: Vec<String> = parts
                .iter()
                .map(|part| match part {
                    Self::Leaf(..) | Self::Not(_) => part.text(random),
                    _ => format!("({})", part.text(random)),
                })
                .collect();
            parts.join(word)
        };
        match self {
            Self::And(parts) => joined(parts, " AND "),
            Self::Or(parts) => joined(parts, " or "),
            Self::Not(part) => format!("NOT ({})", part.text(random)),
            Self::Leaf(clause, negative) => clause.text(*negative, random),
        }
    }

    fn generated(random: &mut Random, all: &[Facts], depth: usize) -> Self {
        let parts = |random: &mut Random| -> Vec<Self> {
            let count = 2 + random.below(2);
            (0..count)
                .map(|_| Self::generated(random, all, depth - 1))
                .collect()
        };
        match random.below(6) {
            0 if depth > 0 => Self::And(parts(random)),
            1 if depth > 0 => Self::Or(parts(random)),
            2 if depth > 0 => Self::Not(Box::new(Self::generated(random, all, depth - 1))),
            _ => {
                let clause = generated_clause(random, all);
                Self::Leaf(clause, random.below(3) == 0)
            }
        }
    }
}

/// Fields with values.
const VALUE_FIELDS: [&str; 18] = [
    "project",
    "issuetype",
    "type",
    "status",
    "statuscategory",
    "assignee",
    "reporter",
    "creator",
    "priority",
    "resolution",
    "labels",
    "component",
    "fixversion",
    "key",
    "id",
    "parent",
    "cf[10]",
    "cf[11]",
];
const TEXT_FIELDS: [&str; 4] = ["summary", "description", "comment", "text"];
const TIME_FIELDS: [&str; 4] = ["created", "updated", "due", "resolved"];
const OPERATORS: [Operator; 5] = [
    Operator::Equal,
    Operator::Greater,
    Operator::GreaterEqual,
    Operator::Less,
    Operator::LessEqual,
];
const ORDERS: [&str; 13] = [
    "id", "key", "project", "summary", "status", "assignee", "priority", "labels", "cf[10]",
    "created", "updated", "due", "resolved",
];

fn generated_clause(random: &mut Random, all: &[Facts]) -> Clause {
    match random.below(10) {
        0 => {
            let field = match random.below(3) {
                0 => *chosen(random, &["due", "resolved"]),
                1 => *chosen(random, &TEXT_FIELDS),
                _ => *chosen(random, &VALUE_FIELDS),
            };
            Clause::Is(field)
        }
        1 | 2 => {
            let words = (0..=random.below(2)).map(|_| {
                let word = *chosen(random, &WORDS);
                let is_prefix = random.below(3) == 0;
                let count = word.chars().count() - usize::from(is_prefix);
                let word: String = word.chars().take(count).collect();
                (word.to_ascii_uppercase(), is_prefix)
            });
            let words = words.collect();
            let field = *chosen(random, &TEXT_FIELDS);
            Clause::Contains(field, words)
        }
        3 | 4 => generated_time(random, all),
        5 => {
            let operator = OPERATORS[1 + random.below(4)];
            let other = chosen(random, all);
            match random.below(3) {
                0 => Clause::Number("id", operator, other.id.to_string()),
                1 => Clause::Number("key", operator, other.key().to_lowercase()),
                _ => Clause::Number("cf[10]", operator, chosen(random, &POINTS).to_string()),
            }
        }
        _ => {
            let field = *chosen(random, &VALUE_FIELDS);
            let wanted = (0..=random.below(3)).map(|_| match random.below(8) {
                0 => Wanted::Empty,
                1 if matches!(field, "assignee" | "reporter" | "creator") => Wanted::Me,
                2 => Wanted::Text("nothing".to_owned()),
                _ => {
                    let values = chosen(random, all).values(field);
                    match values.get(random.below(values.len().max(1))) {
                        Some(text) => Wanted::Text(text.to_ascii_uppercase()),
                        None => Wanted::Empty,
                    }
                }
            });
            let wanted = wanted.collect();
            Clause::Same(field, wanted)
        }
    }
}

fn generated_time(random: &mut Random, all: &[Facts]) -> Clause {
    let field = *chosen(random, &TIME_FIELDS);
    let operator = *chosen(random, &OPERATORS);
    let near = chosen(random, all).time(field).unwrap_or(NOW);
    let local = near + ZONE;
    let (days, minutes) = (local.div_euclid(DAY), local.rem_euclid(DAY) / MINUTE);
    let (at, text) = match random.below(5) {
        0 => (near, near.to_string()),
        1 => {
            let text = format!(
                "{} {:02}:{:02}",
                day_text(days, '/'),
                minutes / 60,
                minutes % 60
            );
            (days * DAY + minutes * MINUTE - ZONE, format!("\"{text}\""))
        }
        2 => (days * DAY - ZONE, day_text(days, '-')),
        3 => {
            let (span, text) = generated_span(random);
            (NOW + span, text)
        }
        _ => {
            let today = (NOW + ZONE).div_euclid(DAY);
            let start = |days: i64| days * DAY - ZONE;
            let (at, name) = match random.below(5) {
                0 => (NOW, "now"),
                1 => (start(today), "startOfDay"),
                2 => (start(today + 1) - 1, "endOfDay"),
                // 1970-01-01 was a Thursday; weeks begin on Sunday.
                3 => (start(today - (today + 4).rem_euclid(7)), "startOfWeek"),
                _ => (start(today - civil(today).2 + 1), "startOfMonth"),
            };
            if random.below(2) == 0 {
                (at, format!("{name}()"))
            } else {
                let (span, text) = generated_span(random);
                (at + span, format!("{name}({text})"))
            }
        }
    };
    Clause::Time(field, operator, at, text)
}

/// A duration, and its text such as `-1w2d`.
fn generated_span(random: &mut Random) -> (i64, String) {
    let units = [
        (7 * DAY, 'w'),
        (DAY, 'd'),
        (60 * MINUTE, 'h'),
        (MINUTE, 'm'),
    ];
    let (mut span, mut parts) = (0, Vec::new());
    for (unit, letter) in units {
        // At least one day.
        let count = number(random, 4) + i64::from(letter == 'd');
        if count > 0 {
            span += count * unit;
            parts.push(format!("{count}{letter}"));
        }
    }
    let text = parts.concat();
    if random.below(4) > 0 {
        return (-span, format!("-{text}"));
    }
    (span, text)
}

fn generated_order(random: &mut Random) -> Vec<(&'static str, bool)> {
    let count = random.below(4);
    (0..count)
        .map(|_| (*chosen(random, &ORDERS), random.below(2) == 0))
        .collect()
}

/// The ids that a query selects, in its order.
fn expected(node: &Node, order: &[(&str, bool)], all: &[Facts]) -> Vec<String> {
    let mut found: Vec<&Facts> = all.iter().filter(|facts| node.holds(facts, true)).collect();
    let default = [("updated", true), ("key", false)];
    let order: &[(&str, bool)] = if order.is_empty() { &default } else { order };
    found.sort_by(|a, b| {
        let parts = order.iter().map(|(field, descends)| {
            let order = a.compare(b, field);
            if *descends { order.reverse() } else { order }
        });
        parts
            .fold(Ordering::Equal, Ordering::then)
            .then(a.id.cmp(&b.id))
    });
    found.iter().map(|facts| facts.id.to_string()).collect()
}

fn store(replica: &Replica, all: &[Facts]) {
    let myself = json!({"accountId": PEOPLE[ME][0], "timeZone": "GMT+05:30"});
    replica.store("meta", "myself", &myself).unwrap();
    for [id, key, name] in PROJECTS {
        let project = json!({"project": {"id": id, "key": key, "name": name}, "visible": true});
        replica.store("projects", id, &project).unwrap();
    }
    for facts in all {
        let project = PROJECTS[facts.project][0];
        let (topic, id) = (format!("issues.{project}"), facts.id.to_string());
        replica.store(&topic, &id, &facts.json()).unwrap();
        for comment in facts.comment_json() {
            let key = format!("{id}.{}", comment["id"].as_str().unwrap());
            replica
                .store(&format!("comments.{project}"), &key, &comment)
                .unwrap();
        }
    }
}

#[test]
fn queries_select_what_a_naive_evaluator_selects() {
    let (mut compared, mut partial) = (0, 0);
    for seed in SEEDS {
        let mut random = Random(seed);
        let all: Vec<Facts> = (0..ISSUES)
            .map(|at| Facts::generated(&mut random, at))
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let options = OpenOptions {
            durability: Durability::Memory,
            ..OpenOptions::default()
        };
        let weir = Weir::open_with(folder.path(), &options).unwrap();
        let replica = Replica::new(weir, "test");
        store(&replica, &all);
        let index = Index::load(&replica).unwrap();
        for _ in 0..QUERIES {
            let node = Node::generated(&mut random, &all, 3);
            let order = generated_order(&mut random);
            let mut query = node.text(&mut random);
            for (at, (field, descends)) in order.iter().enumerate() {
                let before = if at == 0 { " ORDER BY " } else { ", " };
                let direction = if *descends { " DESC" } else { "" };
                query = format!("{query}{before}{field}{direction}");
            }
            let wanted = expected(&node, &order, &all);
            let found = offline::select(&replica, &query, NOW);
            let found = found.unwrap_or_else(|error| panic!("seed {seed}, {query}: {error}"));
            let id = |issue: &Value| issue["id"].as_str().unwrap().to_owned();
            let found: Vec<String> = found.iter().map(id).collect();
            assert_eq!(found, wanted, "replica, seed {seed}, {query}\n{node:?}");
            let rows = index.select(&query, NOW, usize::MAX).unwrap();
            let rows: Vec<String> = rows.iter().map(|row| row.id.clone()).collect();
            assert_eq!(rows, wanted, "index, seed {seed}, {query}\n{node:?}");
            compared += 1;
            partial += usize::from(!wanted.is_empty() && wanted.len() < ISSUES);
        }
    }
    // Many queries select some issues and omit others.
    assert!(
        compared >= 1000 && partial > compared / 4,
        "{compared} {partial}"
    );
}

/// As in Jira, `NOT field = value` is `field != value`, which no empty field satisfies.
#[test]
fn an_empty_field_is_neither_equal_nor_unequal_to_a_value() {
    let context = Context::default();
    let assigned = json!({"fields": {"assignee": {"accountId": "u-1"}, "customfield_10": 3.0}});
    let empty = json!({"fields": {"assignee": null, "labels": []}});
    for (query, holds_assigned, holds_empty) in [
        ("assignee = u-2", false, false),
        ("assignee != u-2", true, false),
        ("NOT assignee = u-2", true, false),
        ("NOT (assignee = u-2 OR labels = red)", false, false),
        ("NOT NOT assignee = u-1", true, false),
        ("NOT assignee IS EMPTY", true, false),
        ("assignee = EMPTY", false, true),
        ("assignee = \"EMPTY\"", false, false),
        ("assignee != null", true, false),
        ("assignee IN (u-1, EMPTY)", true, true),
        ("assignee NOT IN (u-2, EMPTY)", true, false),
        ("NOT cf[10] > 3", true, false),
        ("cf[10] = 3", true, false),
        ("cf[10] != 3.0", false, false),
        ("NOT created > 0", false, false),
    ] {
        let parsed = parse(query).unwrap();
        assert_eq!(
            matches(&parsed, &assigned, &context),
            holds_assigned,
            "{query}"
        );
        assert_eq!(matches(&parsed, &empty, &context), holds_empty, "{query}");
    }
}

/// A custom field can have a person, rich text, or a list of options, persons or sprints.
#[test]
fn every_kind_of_custom_field_is_compared() {
    let context = Context {
        me: "u-1".to_owned(),
        ..Context::default()
    };
    let anna = json!({"accountId": "u-1", "displayName": "Anna Berg", "active": true});
    let issue = json!({"fields": {
        "customfield_1": anna,
        "customfield_2": [anna],
        "customfield_3": [{"id": "71", "value": "Blue"}, {"id": "72", "value": "Red"}],
        "customfield_4": [{"id": 5, "name": "Sprint five", "state": "active"}],
        "customfield_5": document(&[0, 2]),
        "customfield_6": [],
        "customfield_7": null,
    }});
    for (query, holds) in [
        ("cf[1] = currentUser()", true),
        ("cf[1] != currentUser()", false),
        ("cf[2] IN (u-2, currentUser())", true),
        ("cf[2] = 'anna berg'", true),
        ("cf[2] = u-2", false),
        ("cf[3] = red", true),
        ("cf[3] != blue", false),
        ("cf[3] IN (green, 71)", true),
        ("cf[3] IS EMPTY", false),
        ("cf[4] = 'sprint five' AND cf[4] = 5", true),
        ("cf[5] ~ queue", true),
        ("cf[5] IS EMPTY", false),
        ("cf[6] IS EMPTY AND cf[7] IS EMPTY", true),
    ] {
        let parsed = parse(query).unwrap();
        assert_eq!(matches(&parsed, &issue, &context), holds, "{query}");
    }
}

/// A text without words is not empty if it shows an object. A list from the index has the same
/// issues.
#[test]
fn a_text_that_shows_only_an_object_is_not_empty() {
    let folder = tempfile::tempdir().unwrap();
    let weir = Weir::open_with(folder.path(), &OpenOptions::default()).unwrap();
    let replica = Replica::new(weir, "test");
    let mut facts = Facts::generated(&mut Random(1), 0);
    (facts.description, facts.comments) = (Vec::new(), Vec::new());
    let mut issue = facts.json();
    let (project, id) = (PROJECTS[facts.project][0], facts.id);
    store(&replica, &[facts]);
    let media = json!({"type": "media", "attrs": {"id": "7"}});
    let mention = json!({"type": "mention", "attrs": {"id": "u-1"}});
    for (node, is_empty) in [
        (json!({"type": "mediaSingle", "content": [media]}), false),
        (json!({"type": "paragraph", "content": [mention]}), false),
        (json!({"type": "blockCard", "attrs": {"url": "x"}}), false),
        (json!({"type": "paragraph", "content": []}), true),
        (
            json!({"type": "paragraph", "content": [{"type": "hardBreak"}]}),
            true,
        ),
    ] {
        let text = json!({"type": "doc", "version": 1, "content": [node]});
        let comment = json!({"id": "1", "body": text});
        issue["fields"]["description"] = text;
        issue["fields"]["comment"] = json!({"total": 1, "comments": [comment]});
        let (issues, comments) = (format!("issues.{project}"), format!("comments.{project}"));
        replica.store(&issues, &id.to_string(), &issue).unwrap();
        replica
            .store(&comments, &format!("{id}.1"), &comment)
            .unwrap();
        let index = Index::load(&replica).unwrap();
        for field in ["description", "comment"] {
            let query = format!("{field} IS EMPTY");
            let found = offline::select(&replica, &query, NOW).unwrap();
            assert_eq!(found.len(), usize::from(is_empty), "{query}: {node}");
            let rows = index.select(&query, NOW, usize::MAX).unwrap();
            assert_eq!(rows.len(), usize::from(is_empty), "{query}: {node}");
        }
    }
}

/// As in Jira, `key` and `id` are names of one field, and the categories of statuses have equal ids
/// at every site.
#[test]
fn a_key_and_an_id_are_one_field() {
    let context = Context::default();
    let issue = json!({"id": "10001", "key": "AA-1", "fields": {
        "status": {"name": "Closed", "statusCategory": {"key": "done", "name": "Done"}}}});
    for (query, holds) in [
        ("key = 10001", true),
        ("issue IN (7, 10001)", true),
        ("issueKey != 10001", false),
        ("id = aa-1", true),
        ("id NOT IN (AA-1)", false),
        ("id != AA-2", true),
        ("statusCategory = 3", true),
        ("statusCategory IN (2, 4)", false),
        ("statusCategory != 3", false),
    ] {
        let parsed = parse(query).unwrap();
        assert_eq!(matches(&parsed, &issue, &context), holds, "{query}");
    }
}

#[test]
fn unresolved_issues_have_no_resolution() {
    let context = Context::default();
    let open = json!({"fields": {"resolution": null}});
    let fixed = json!({"fields": {"resolution": {"id": "41", "name": "Fixed"}}});
    for (query, holds_open) in [
        ("resolution = Unresolved", true),
        ("resolution in (\"unresolved\")", true),
        ("resolution != Unresolved", false),
        ("NOT resolution = Unresolved", false),
    ] {
        let parsed = parse(query).unwrap();
        assert_eq!(matches(&parsed, &open, &context), holds_open, "{query}");
        assert_eq!(matches(&parsed, &fixed, &context), !holds_open, "{query}");
    }
}

/// A comparison that the evaluator cannot decide is an error with its position, not an empty list.
#[test]
fn an_undecidable_comparison_is_refused() {
    for (query, what, at) in [
        ("priority > High", "has no order", 12),
        ("status = Done AND created > yesterday", "is not a date", 29),
        ("updated in (2024-11-29, soon)", "is not a date", 25),
        ("updated >= startOfMonth(-1)", "'-1' is not a duration", 12),
        ("due = currentUser()", "cannot be compared", 7),
        ("assignee = now()", "cannot be compared", 12),
        ("assignee ~ currentUser()", "cannot be compared", 12),
        ("reporter >= currentUser()", "cannot be compared", 13),
        ("labels in (red, currentUser())", "cannot be compared", 17),
        ("created ~ x", "does not have the operators", 11),
        ("NOT due !~ 2024-11-29", "does not have the operators", 12),
        ("updated ~ now()", "does not have the operators", 11),
        ("cf[10] >= \"2024-11-29\"", "has no order", 11),
        ("id > AA-1", "has no order", 6),
        ("key > AA", "has no order", 7),
        ("summary ~ '\"login page\"'", "has an operator", 11),
        ("summary ~ \"\\\"login page\\\"\"", "has an operator", 11),
        ("text ~ 'login OR (NOT logout)'", "has an operator", 8),
        ("text ~ 'login -page'", "has an operator", 8),
        ("NOT text ~ 'log?n'", "has an operator", 12),
        ("comment !~ 'lo*n page'", "has an operator", 12),
        ("summary ~ 'roam~ page'", "has an operator", 11),
        ("summary ~ 'login^4 page'", "has an operator", 11),
    ] {
        let error = parse(query).unwrap_err();
        assert!(error.what.contains(what), "{query}: {error}");
        assert_eq!(error.at, at, "{query}: {error}");
    }
    for query in [
        "updated > -1w AND created <= '2024-11-29 10:00' AND due = 2024/11/29",
        "updated >= startOfMonth(-1w) AND id >= 7 AND key < aa-12 AND cf[10] > 1.5",
        "reporter IN (currentUser(), EMPTY) AND due != null",
        "text ~ 'a two-word C++ (or not) log*, pag*' AND summary !~ \"it's\"",
    ] {
        parse(query).unwrap();
    }
}
