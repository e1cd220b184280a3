//! Which options of a block its members take over.

use crate::args::EXCLUSIVE;
use crate::errors::Errors;
use crate::function::Function;
use crate::options::{Given, Options};
use crate::signature::{never_returns, returned_future};
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt as _;
use syn::{LitStr, ReturnType, Signature, Type};

/// Options that `on_exceed` speaks of.
const BUDGETS: [&str; 4] = ["max_delta", "max_peak", "max_allocs", "leak_check"];

/// The options without those that cannot be a block's, which are errors.
pub(super) fn for_block(options: Options, errors: &mut Errors) -> Options {
    let keep = |option: &Given| {
        let message = match option.key.as_str() {
            "name" => {
                "`name` would name all functions of this block alike; give it to the function that is meant".to_owned()
            }
            word @ ("args" | "skip") if option.has_list() => {
                format!("`{word}(…)` names arguments of one function; give it to the function that has them")
            }
            _ => return true,
        };
        errors.push_at(&option.tokens, message);
        false
    };
    Options { list: options.list.into_iter().filter(keep).collect() }
}

/// The options of a member of a block that has the options `outer`: its `own`, and of the block's all that it does not
/// give itself and that can be a function's of its kind. `function` is none for a member that is a block too. `name` is
/// the function's unless it gives another.
pub(super) fn inherited(
    outer: &Options,
    own: &Options,
    function: Option<&Function>,
    name: Option<&LitStr>,
) -> TokenStream {
    let has_budget = BUDGETS.iter().any(|budget| outer.has(budget) || own.has(budget));
    let applies = |option: &Given| {
        let Some(Function { signature, .. }) = function else { return true };
        match option.key.as_str() {
            "err" => returns_result(signature),
            "ret" => returns_named_type(signature),
            "future" => returns_future(signature),
            "on_exceed" => has_budget,
            _ => true,
        }
    };
    let displaced = |key: &str| {
        own.has(key)
            || EXCLUSIVE.iter().any(|&(one, other)| (key == one && own.has(other)) || (key == other && own.has(one)))
    };
    let taken = outer.list.iter().filter(|option| !displaced(&option.key) && applies(option));
    let merged = own.list.iter().chain(taken).map(|option| &option.tokens);
    let name = name.filter(|_| !own.has("name")).map(|name| quote!(name = #name));
    let merged = merged.chain(&name);
    quote!(#(#merged),*)
}

/// The written return type, without what a macro puts around it.
fn returned_type(signature: &Signature) -> Option<&Type> {
    let ReturnType::Type(_, output) = &signature.output else { return None };
    let mut output = &**output;
    while let Type::Group(syn::TypeGroup { elem, .. }) | Type::Paren(syn::TypeParen { elem, .. }) = output {
        output = elem;
    }
    Some(output)
}

fn last_word(ty: &Type) -> Option<String> {
    let Type::Path(path) = ty else { return None };
    path.path.segments.last().map(|segment| segment.ident.unraw().to_string())
}

/// Whether the return type is called a result: nothing more can be seen here.
fn returns_result(signature: &Signature) -> bool {
    // To its author, a method that `#[async_trait]` has rewritten returns what its future gives.
    let future = returned_future(signature).filter(|future| future.is_of_async_trait);
    let output = future.and_then(|future| future.output);
    let returned = output.or_else(|| returned_type(signature));
    returned.and_then(last_word).is_some_and(|word| word.ends_with("Result"))
}

/// Whether a value is returned that can have a `Debug`: no opaque type, no boxed future, not nothing.
fn returns_named_type(signature: &Signature) -> bool {
    let nothing = |ty: &Type| matches!(ty, Type::Tuple(tuple) if tuple.elems.is_empty());
    returned_type(signature).is_some_and(|ty| !matches!(ty, Type::ImplTrait(_)) && !nothing(ty))
        && !never_returns(signature)
        && returned_future(signature).is_none()
}

/// Whether the return type is a future by its words.
fn returns_future(signature: &Signature) -> bool {
    const BOXED: [&str; 2] = ["BoxFuture", "LocalBoxFuture"];
    let Some(ty) = returned_type(signature).filter(|_| signature.asyncness.is_none()) else { return false };
    let named = last_word(ty).is_some_and(|word| BOXED.contains(&word.as_str()));
    named || returned_future(signature).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(text: &str) -> TokenStream {
        text.parse().unwrap()
    }

    #[track_caller]
    fn assert_merged(outer: &str, own: &str, function: &str, expected: &str) {
        let outer = Options::read(stream(outer));
        let function = Function::read(stream(&format!("{function} {{}}")), &mut Errors::default()).unwrap();
        let merged = inherited(&outer, &Options::read(stream(own)), Some(&function), None);
        assert_eq!(merged.to_string(), stream(expected).to_string());
    }

    #[test]
    fn own_options_come_first_and_displace() {
        assert_merged("phase = \"a\", level = 1", "level = 2", "fn f()", "level = 2, phase = \"a\"");
        assert_merged("phase = \"a\"", "", "fn f()", "phase = \"a\"");
        assert_merged("", "\"n\", err", "fn f()", "\"n\", err");
        assert_merged("fields(a = 1, b)", "fields(c)", "fn f()", "fields(c)");
    }

    #[test]
    fn rivals_displace_each_other() {
        assert_merged("device = d", "devices(all)", "fn f()", "devices(all)");
        assert_merged("devices = [a, b]", "device = d", "fn f()", "device = d");
        assert_merged("args", "skip(a)", "fn f(a: u8)", "skip(a)");
    }

    #[test]
    fn what_a_function_cannot_have_it_does_not_inherit() {
        let all = "err, ret, future";
        for (function, expected) in [
            ("fn f()", ""),
            ("fn f() -> ()", ""),
            ("fn f() -> !", ""),
            ("fn f() -> u8", "ret"),
            ("fn f() -> Result<u8, E>", "err, ret"),
            ("async fn f() -> io::Result<()>", "err, ret"),
            ("fn f() -> fmt::Result", "err, ret"),
            ("fn f() -> (IoResult<u8>)", "err, ret"),
            ("fn f() -> Option<Result<u8, E>>", "ret"),
            ("fn f() -> impl Iterator<Item = u8>", ""),
            ("fn f() -> impl Future<Output = u8> + Send", "future"),
            ("async fn f() -> impl Future<Output = u8>", ""),
            ("fn f() -> Pin<Box<dyn Future<Output = u8> + Send + 'a>>", "future"),
        ] {
            assert_merged(all, "", function, expected);
            assert_merged("", all, function, all);
        }
        assert_merged("on_exceed = \"panic\"", "", "fn f()", "");
        assert_merged("on_exceed = \"panic\"", "max_peak = 1", "fn f()", "max_peak = 1, on_exceed = \"panic\"");
    }

    #[test]
    fn what_is_wrong_stays() {
        assert_merged("phase = \"a\"", "level = , = 1, phse", "fn f()", "level = , = 1, phse, phase = \"a\"");
    }
}
