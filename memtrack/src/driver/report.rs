//! The driver's line of a summary.

use std::fmt;

use super::{DriverUnavailable, Reconciliation};
use crate::plain_text::shown;

/// What a summary says of the driver: the reconciled figures, or why there are none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DriverReport {
    /// The figures, adding up.
    Reconciled(Reconciliation),
    /// No figures, and why.
    Unavailable(DriverUnavailable),
}

impl DriverReport {
    /// The figures, if there are any.
    pub fn reconciliation(&self) -> Option<&Reconciliation> {
        match self {
            Self::Reconciled(reconciliation) => Some(reconciliation),
            Self::Unavailable(_) => None,
        }
    }
}

impl From<Result<Reconciliation, DriverUnavailable>> for DriverReport {
    fn from(result: Result<Reconciliation, DriverUnavailable>) -> Self {
        match result {
            Ok(reconciliation) => Self::Reconciled(reconciliation),
            Err(why) => Self::Unavailable(why),
        }
    }
}

impl fmt::Display for DriverReport {
    /// One line that starts with `driver`: the reconciliation, or `driver    no figures: ` and why.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A driver's own words may stand in both.
            Self::Reconciled(reconciliation) => write!(f, "driver    {}", shown(&reconciliation.to_string())),
            Self::Unavailable(why) => write!(f, "driver    no figures: {}", shown(&why.to_string())),
        }
    }
}
