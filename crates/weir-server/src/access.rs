//! Who may do what: the one place that every request passes. See
//! [`security`](crate::security).

pub(crate) use crate::security::{Principal, Right};
