//! What a build without a JSON reader says.

use crate::history::error::{ReadError, ReadLimits};
use crate::history::value::{Value, Values};

pub(in crate::history) fn read(_bytes: &[u8], _limits: &ReadLimits) -> Result<(Values, Value), ReadError> {
    Err(ReadError::JsonNotBuilt)
}
