//! What an annotated function may not be.

use crate::args::{Args, Device};
use crate::arguments;
use crate::errors::Errors;
use crate::function::Function;
use crate::level::Level;
use crate::limit::Limit;
use crate::signature::{is_parameter, never_returns, returned_future};
use crate::text::{Text, depends_on_types};
use quote::ToTokens;
use syn::{Attribute, Meta, ReturnType};

/// Reports every reason why `function` cannot be measured as `args` ask.
pub(crate) fn check(function: &Function, args: &Args, errors: &mut Errors) {
    if let Some(constness) = &function.signature.constness {
        errors.push_at(constness, "`#[track_memory]` cannot be used on a `const fn`: tracking runs at run time");
    }
    if let Some(naked) = naked(function) {
        errors.push_at(naked, "`#[track_memory]` cannot be used on a naked function: its body is assembly alone");
    }
    check_returned(function, args, errors);
    arguments::check(args, function, errors);
    if let Some((word, _)) = &args.on_exceed
        && !args.names_a_budget
    {
        errors.push_at(
            word,
            "`on_exceed` needs a budget: `max_delta`, `max_peak`, `max_allocs` or `leak_check`; none is given",
        );
    }
    for (option, text) in [("name", &args.name), ("target", &args.target)] {
        if let Some(Text::Constant(constant)) = text {
            check_static(option, constant, function, errors);
        }
    }
    let levels = [&args.level].into_iter().chain([&args.err, &args.ret].map(|report| match report {
        Some(report) => &report.level,
        None => &None,
    }));
    for level in levels {
        if let Some(Level::Constant(path)) = level {
            check_static("level", path, function, errors);
        }
    }
    let limits = [
        ("max_delta", &args.max_delta),
        ("max_peak", &args.max_peak),
        ("max_allocs", &args.max_allocs),
        ("leak_check", &args.leak_check),
        ("min_delta", &args.min_delta),
    ];
    for (option, limit) in limits {
        if let Some(constant) = limit.as_ref().and_then(Limit::constant) {
            check_static(option, constant, function, errors);
        }
    }
    if let Some(Text::Constant(constant)) = &args.phase {
        check_constant("phase", constant, function, errors);
    }
    if let Some(Device::Several(devices)) = &args.device
        && let syn::Expr::Array(array) = devices
        && array.elems.is_empty()
    {
        errors.push_at(devices, "`devices` needs at least one allocator");
    }
}

/// The attribute `#[unsafe(naked)]` or `#[naked]`, if the function carries it.
pub(crate) fn naked(function: &Function) -> Option<&Attribute> {
    fn is_naked(attribute: &Meta) -> bool {
        match attribute {
            Meta::List(list) => {
                list.path.is_ident("unsafe") && list.parse_args::<Meta>().is_ok_and(|meta| is_naked(&meta))
            }
            attribute => attribute.path().is_ident("naked"),
        }
    }
    function.attributes.iter().find(|attribute| is_naked(&attribute.meta))
}

/// Reports options that do not go with what the function returns.
fn check_returned(function: &Function, args: &Args, errors: &mut Errors) {
    let signature = &function.signature;
    if let Some(future) = &args.future {
        if signature.asyncness.is_some() {
            errors.push_at(future, "`future` is for functions that return a future; this one is already `async`");
        } else if let ReturnType::Default = signature.output {
            errors.push_at(future, "`future` needs a function that returns a future; this one returns nothing");
        } else if never_returns(signature) {
            errors.push_at(future, "`future` needs a function that returns a future; this one never returns");
        }
    }
    for report in [&args.err, &args.ret].into_iter().flatten() {
        if never_returns(signature) {
            let needs =
                if report.word == "err" { "a function that returns a `Result`" } else { "a function that returns" };
            errors.push_at(&report.word, format!("`{}` needs {needs}; this one never returns", report.word));
        }
    }
    if let Some(err) = &args.err
        && let ReturnType::Default = signature.output
    {
        errors.push_at(&err.word, "`err` needs a function that returns a `Result`; this one returns nothing");
    } else if let Some(err) = &args.err
        && args.future.is_none()
        && returned_future(signature).is_some_and(|future| !future.is_of_async_trait)
    {
        errors.push_at(
            &err.word,
            "`err` needs a function that returns a `Result`; this one returns a future, which the option `future` measures",
        );
    }
}

/// Reports the value of an option that is one of the function's arguments and no constant.
fn check_constant(option: &str, value: &impl ToTokens, function: &Function, errors: &mut Errors) {
    let text = value.to_token_stream().to_string();
    if is_parameter(&function.signature, &text) {
        errors.push_at(value, format!("`{option}` needs a constant, and `{text}` is an argument"));
    }
}

/// Reports the value of an option that depends on `Self` or on a type parameter although it becomes part of the call
/// site's `static` description, which knows neither.
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
