//! What an annotated function may not be.

use crate::args::Args;
use crate::errors::Errors;
use crate::function::Function;
use crate::signature::never_returns;

/// Reports every reason why `function` cannot be measured as `args` ask.
pub(crate) fn check(function: &Function, args: &Args, errors: &mut Errors) {
    if let Some(constness) = &function.signature.constness {
        errors.push_at(constness, "`#[track_memory]` cannot be used on a `const fn`: tracking runs at run time");
    }
    if let Some(err) = &args.err
        && never_returns(&function.signature)
    {
        errors.push_at(err, "`err` needs a function that returns a `Result`; this one never returns");
    }
}
