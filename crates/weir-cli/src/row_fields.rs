//! Lists the fields of the rows of each command, so that `-o help` works without the required
//! arguments.

use crate::output::Field;
use crate::{
    backup, bench, cert, compact, group, import, jira, program, record, repair, restore, token,
    topic, verdict, verify,
};

/// Commands with required arguments that print rows, and the fields of the rows.
const ROWS: &[(&str, &[Field])] = &[
    ("put", verdict::FIELDS),
    ("get", record::FIELDS),
    ("tail", record::FIELDS),
    ("delete", verdict::FIELDS),
    ("txn", verdict::FIELDS),
    ("import", import::FIELDS),
    ("export", record::FIELDS),
    ("topic create", verdict::FIELDS),
    ("topic show", topic::FIELDS),
    ("topic set", verdict::FIELDS),
    ("topic rm", verdict::FIELDS),
    ("topic retain", topic::RETAIN_FIELDS),
    ("topic verify", topic::VERIFY_FIELDS),
    ("group create", verdict::FIELDS),
    ("group ls", group::FIELDS),
    ("group show", group::FIELDS),
    ("group claim", group::CLAIM_FIELDS),
    ("group ack", verdict::FIELDS),
    ("group nack", verdict::FIELDS),
    ("group reset", verdict::FIELDS),
    ("group rm", verdict::FIELDS),
    ("bench", bench::FIELDS),
    ("bench workload", bench::FIELDS),
    ("verify", verify::FIELDS),
    ("backup", backup::FIELDS),
    ("restore", restore::FIELDS),
    ("repair", repair::FIELDS),
    ("compact", compact::FIELDS),
    ("token create", token::NEW_FIELDS),
    ("token revoke", token::FIELDS),
    ("cert ca", cert::FIELDS),
    ("cert issue", cert::FIELDS),
    ("cert show", cert::FIELDS),
];

/// The fields of the rows of a command. `None` if it prints no rows or has no required arguments.
pub(crate) fn of_command(path: &str) -> Option<&'static [Field]> {
    let tables = [ROWS, program::ROWS, jira::ROWS];
    let mut rows = tables.into_iter().flatten();
    rows.find_map(|(name, fields)| (*name == path).then_some(*fields))
}
