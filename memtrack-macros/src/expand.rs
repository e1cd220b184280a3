//! From the attribute's tokens to the function's: reading, checking, and what all expansions share.

use crate::args::Args;
use crate::check::check;
use crate::errors::Errors;
use crate::expected_lints::relaxed;
use crate::function::Function;
use crate::items;
use crate::prologue::local;
use crate::signature::returned_future;
use crate::{expand_async, expand_future, expand_sync};
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::parse::Parser as _;
use syn::{Block, Expr, Pat, Signature, Stmt};

/// Expands `#[track_memory(args)] item`.
///
/// With a mistake anywhere, the item is emitted as it was, so that its callers do not fail too.
pub(crate) fn attribute(args: TokenStream, item: TokenStream) -> TokenStream {
    if let Some(expanded) = items::attribute(&args, &item) {
        return expanded;
    }
    let mut errors = Errors::default();
    let args = Args::read(args, &mut errors);
    let function = Function::read(item.clone(), &mut errors);
    if let Some(function) = &function {
        check(function, &args, &mut errors);
    }
    if let Some(errors) = errors.finish() {
        return quote!(#errors #item);
    }
    match function {
        Some(function) if function.signature.asyncness.is_some() => expand_async::expand(&args, function),
        Some(function) if args.future.is_some() || is_of_async_trait(&function) => {
            expand_future::expand(&args, function)
        }
        Some(function) => expand_sync::expand(&args, function),
        None => item,
    }
}

/// Whether the function is an `async fn` to its author, which `#[async_trait]` has rewritten.
fn is_of_async_trait(function: &Function) -> bool {
    returned_future(&function.signature).is_some_and(|future| future.is_of_async_trait)
}

/// The function with another signature and other statements between its braces.
pub(crate) fn emit(function: &Function, signature: &Signature, statements: TokenStream) -> TokenStream {
    let Function { attributes, visibility, defaultness, inner_attributes, end, .. } = function;
    let mut body = Group::new(Delimiter::Brace, quote!(#(#inner_attributes)* #statements));
    body.set_span(*end);
    let attributes = relaxed(attributes);
    quote!(#(#attributes)* #visibility #defaultness #signature #body)
}

/// A closure or an async block, by the words it begins with and its statements.
///
/// It has the user's place and the user's braces: lints that look at the end of a function look at the end of the user's
/// closures and blocks too, and at no other's.
pub(crate) fn block_of_user(function: &Function, words: &[&str], statements: TokenStream) -> TokenStream {
    let place = function.end;
    let words = words.iter().map(|word| match *word {
        "||" => quote_spanned!(place=> ||),
        word => Ident::new(word, place).into_token_stream(),
    });
    let mut block = Group::new(Delimiter::Brace, statements);
    block.set_span(place);
    quote!(#(#words)* #block)
}

/// The user's body as the last expression of whatever it is put in.
///
/// It stays a block of its own in the user's braces, since lints look at where a block begins. The braces around it are of
/// this crate's edition, in which the temporaries of a last expression end with its block, before the variables around it
/// and whatever the user's edition. The parentheses keep rustc from calling the user's braces one pair too many, and the one
/// lint allowed is one that would report this block instead of the user's last expression.
pub(crate) fn run_body(function: &Function) -> TokenStream {
    let mut body = Group::new(Delimiter::Parenthesis, function.body.to_token_stream());
    body.set_span(Span::mixed_site().located_at(function.body.span()));
    quote_spanned!(Span::mixed_site()=> #[allow(clippy::implicit_return)] { #body })
}

/// The user's body, run to its value and that value returned after `inspect`, which is given the value's name.
pub(crate) fn run_body_to_value(
    function: &Function,
    return_type: &TokenStream,
    inspect: impl FnOnce(&Ident) -> TokenStream,
) -> TokenStream {
    let value = local("__value");
    let inspect = inspect(&value);
    let body = &function.body;
    // Only for a body that visibly never reaches its end: the lint would report our `let`.
    let diverges = ends_diverging(function)
        .then(|| quote_spanned!(Span::mixed_site()=> #[allow(clippy::diverging_sub_expression)]));
    quote_spanned! {Span::mixed_site()=>
        #diverges
        let #value: #return_type = #body;
        #inspect
        #[allow(unreachable_code)]
        return #value;
    }
}

/// A variable of the type that the function returns, whatever that is: rustc infers it from a `return` that never runs.
///
/// Naming the type would be a use of its lifetimes in the body, and some of it cannot be named.
pub(crate) fn bind_return_type(private: &TokenStream) -> TokenStream {
    let edge = return_edge();
    let returned = local("__returns");
    quote_spanned! {Span::mixed_site()=>
        let #returned = #private::Returns::new();
        #edge
    }
}

/// A `return` of the function's type that never runs, for an async block or a closure in the function.
///
/// The type of an async block cannot be stated; seeing this first, rustc coerces every later `return` to it.
pub(crate) fn return_edge() -> TokenStream {
    let returned = local("__returns");
    quote_spanned! {Span::mixed_site()=>
        if false {
            return #returned.value();
        }
    }
}

/// Whether the body's last statement visibly diverges: `return`, `panic!` and its like.
fn ends_diverging(function: &Function) -> bool {
    const DIVERGING: [&str; 4] = ["panic", "todo", "unimplemented", "unreachable"];
    let statements = Block::parse_within.parse2(function.body.stream());
    let Some(last) = statements.ok().and_then(|mut statements| statements.pop()) else { return false };
    let named = |path: &syn::Path| DIVERGING.iter().any(|name| path.segments.last().is_some_and(|s| s.ident == name));
    match &last {
        Stmt::Macro(statement) => named(&statement.mac.path),
        Stmt::Expr(Expr::Macro(expression), _) => named(&expression.mac.path),
        Stmt::Expr(Expr::Return(_), _) => true,
        _ => false,
    }
}

/// The variable that the body's value visibly is, or was before it got other names.
pub(crate) fn last_name(function: &Function) -> Option<Ident> {
    fn is_name(expression: &Expr) -> Option<&Ident> {
        if let Expr::Path(path) = expression { path.path.get_ident() } else { None }
    }
    fn first_name(name: &Ident, statements: &[Stmt]) -> Ident {
        let before = statements.iter().enumerate().rev().find_map(|(index, statement)| {
            let Stmt::Local(local) = statement else { return None };
            let pattern = if let Pat::Type(typed) = &local.pat { &typed.pat } else { &local.pat };
            let is_such = matches!(pattern, Pat::Ident(pattern) if pattern.ident == *name);
            Some((is_name(&local.init.as_ref().filter(|_| is_such)?.expr)?, &statements[..index]))
        });
        before.map_or_else(|| name.clone(), |(name, statements)| first_name(name, statements))
    }
    fn last(statements: &[Stmt]) -> Option<Ident> {
        let (Stmt::Expr(last_expression, None), before) = statements.split_last()? else { return None };
        match last_expression {
            Expr::Block(inner) => last(&inner.block.stmts),
            Expr::Unsafe(inner) => last(&inner.block.stmts),
            expression => is_name(expression).map(|name| first_name(name, before)),
        }
    }
    last(&Block::parse_within.parse2(function.body.stream()).ok()?)
}
