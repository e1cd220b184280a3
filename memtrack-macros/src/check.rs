//! What an annotated function may not be.

use crate::args::{Args, Level};
use crate::errors::Errors;
use crate::function::Function;
use crate::signature::{is_parameter, never_returns, returns_boxed_future};
use crate::text::{Text, depends_on_types};
use quote::ToTokens;
use syn::ReturnType;

/// Reports every reason why `function` cannot be measured as `args` ask.
pub(crate) fn check(function: &Function, args: &Args, errors: &mut Errors) {
    if let Some(constness) = &function.signature.constness {
        errors.push_at(constness, "`#[track_memory]` cannot be used on a `const fn`: tracking runs at run time");
    }
    if let Some(err) = &args.err {
        if never_returns(&function.signature) {
            errors.push_at(err, "`err` needs a function that returns a `Result`; this one never returns");
        } else if let ReturnType::Default = function.signature.output {
            errors.push_at(err, "`err` needs a function that returns a `Result`; this one returns nothing");
        } else if returns_boxed_future(&function.signature) {
            errors.push_at(
                err,
                "`err` needs a function that returns a `Result`; this one returns a boxed future, as each method does \
                 that `#[async_trait]` has rewritten",
            );
        }
    }
    for (option, text) in [("name", &args.name), ("target", &args.target)] {
        if let Some(Text::Constant(constant)) = text {
            check_static(option, constant, function, errors);
        }
    }
    if let Some(Level::Constant(path)) = &args.level {
        check_static("level", path, function, errors);
    }
    if let Some(Text::Constant(constant)) = &args.phase {
        check_constant("phase", constant, function, errors);
    }
}

/// Reports the value of an option that is one of the function's arguments and no constant.
fn check_constant(option: &str, value: &impl ToTokens, function: &Function, errors: &mut Errors) {
    let text = value.to_token_stream().to_string();
    if is_parameter(&function.signature, &text) {
        errors.push_at(value, format!("`{option}` needs a constant, and `{text}` is an argument"));
    }
}

/// Reports the value of an option that depends on `Self` or on a type parameter although it becomes part of the span's
/// `static` description, which knows neither.
fn check_static(option: &str, value: &impl ToTokens, function: &Function, errors: &mut Errors) {
    check_constant(option, value, function, errors);
    if let Some(name) = depends_on_types(value.to_token_stream(), &function.signature.generics) {
        let message = format!(
            "`{option}` cannot depend on `{name}`: it is part of the span's description, which is one for all types; \
             name a concrete type's constant, as in `Type::CONSTANT`"
        );
        errors.push_at(value, message);
    }
}
