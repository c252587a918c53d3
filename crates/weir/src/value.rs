//! A value together with the page that contains its bytes.

use weir_core::Record;
use weir_store::{Page, StoreError};

/// A record that was found by key. It owns the page with its bytes.
#[derive(Clone, Debug)]
pub struct Value {
    page: Page,
}

impl Value {
    pub(crate) fn new(page: Page) -> Result<Option<Self>, StoreError> {
        let found = page.iter().next().transpose()?.is_some();
        Ok(found.then_some(Self { page }))
    }

    /// Returns the page. The record is its first one.
    #[must_use]
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// Returns the record.
    #[must_use]
    pub fn record(&self) -> Record<'_> {
        match self.page.iter().next() {
            Some(Ok(record)) => record,
            _ => unreachable!("`new` has checked that the page has a record"),
        }
    }

    /// Returns the value of the record.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.record().value
    }
}
