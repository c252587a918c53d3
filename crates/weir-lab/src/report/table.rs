//! Tables of the report.

use std::fmt::Write;

/// A Markdown table with padded columns, for reading in a terminal.
#[derive(Debug)]
pub struct Table {
    /// The headings, then the rows.
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these headings.
    pub fn new(headings: &[&str]) -> Table {
        Table {
            rows: vec![
                headings
                    .iter()
                    .map(|heading| (*heading).to_owned())
                    .collect(),
            ],
        }
    }

    /// Adds a row, which must have one cell for each heading.
    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// Renders the table.
    pub fn render(&self) -> String {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
                .max(3)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(text, "| {cell:width$} ");
            }
            text.push_str("|\n");
            if number == 0 {
                for width in &widths {
                    let _ = write!(text, "|{}", "-".repeat(width + 2));
                }
                text.push_str("|\n");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["a", "long heading"]);
        table.row(vec!["value".into(), "x".into()]);
        assert_eq!(
            table.render(),
            "| a     | long heading |\n|-------|--------------|\n| value | x            |\n"
        );
    }
}
