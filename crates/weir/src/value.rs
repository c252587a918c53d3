//! A value that was read, together with the memory it lies in.

use weir_core::Record;
use weir_store::{Page, StoreError};

/// A record that was found by key. The bytes live as long as this does.
#[derive(Clone, Debug)]
pub struct Value {
    page: Page,
}

impl Value {
    pub(crate) fn new(page: Page) -> Result<Option<Self>, StoreError> {
        let found = page.iter().next().transpose()?.is_some();
        Ok(found.then_some(Self { page }))
    }

    /// What its bytes lie in. The record is the first one of it.
    #[must_use]
    pub fn page(&self) -> &Page {
        &self.page
    }

    /// The record.
    #[must_use]
    pub fn record(&self) -> Record<'_> {
        match self.page.iter().next() {
            Some(Ok(record)) => record,
            _ => unreachable!("checked when it was made"),
        }
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.record().value
    }
}
