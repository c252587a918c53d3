//! Compact names: short keywords that both ends of a circuit use in place of long ones.
//!
//! Names are expanded directly after the parser and contracted directly before the renderer, so
//! applications see only long names.

/// A table from compact to long keywords.
///
/// A lookup is linear; a table has a few dozen entries.
#[derive(Clone, Copy, Debug)]
pub struct CompactTable<'t> {
    entries: &'t [(&'t str, &'t str)],
}

impl<'t> CompactTable<'t> {
    /// The table that the benchmark packets use.
    pub const EXAMPLE: CompactTable<'static> = CompactTable::new(&[
        ("c", "_context"),
        ("s", "_source"),
        ("t", "_target"),
        ("da", "_degree_availability"),
        ("np", "_notice_presence"),
        ("m", "_message"),
        ("j", "_subject"),
        ("tc", "_type_content"),
        ("n", "_name"),
        ("tj", "_title_job"),
        ("y", "_country"),
        ("as", "_address_street"),
        ("ap", "_address_code_postal"),
        ("ac", "_address_city"),
        ("p", "_page"),
        ("pu", "_profile_user"),
    ]);

    /// Creates a table of (compact, long) pairs. If two pairs have an equal name, the first one
    /// is used.
    pub const fn new(entries: &'t [(&'t str, &'t str)]) -> CompactTable<'t> {
        CompactTable { entries }
    }

    /// The long keyword of `word`, or `word` itself if the table does not contain it.
    pub fn expand<'w>(&self, word: &'w [u8]) -> &'w [u8]
    where
        't: 'w,
    {
        let entry = self
            .entries
            .iter()
            .find(|(compact, _)| compact.as_bytes() == word);
        entry.map_or(word, |(_, long)| long.as_bytes())
    }

    /// The compact keyword of `word`, or `word` itself if the table does not contain it.
    pub fn contract<'w>(&self, word: &'w [u8]) -> &'w [u8]
    where
        't: 'w,
    {
        let entry = self
            .entries
            .iter()
            .find(|(_, long)| long.as_bytes() == word);
        entry.map_or(word, |(compact, _)| compact.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_expand_and_contract() {
        let table = CompactTable::EXAMPLE;
        for (compact, long) in table.entries {
            assert_eq!(table.expand(compact.as_bytes()), long.as_bytes());
            assert_eq!(table.contract(long.as_bytes()), compact.as_bytes());
        }
        assert_eq!(table.expand(b"_message"), b"_message");
        assert_eq!(table.contract(b"_other"), b"_other");
    }
}
