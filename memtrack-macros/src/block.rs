//! `track_memory_block!(options, { … })`: a part of a body, measured in place.
//!
//! A plain block stays in the function, so that `return`, `?`, `break` and labels mean what they mean there. The guard is
//! the first variable of a block around it, which the value leaves as its last expression; no variable holds the value,
//! so rustc knows the type that is wanted of it. An `async` block becomes the runtime's `Tracked`.

use crate::args::Args;
use crate::check::check;
use crate::divergence::never_ends;
use crate::errors::Errors;
use crate::function::{Function, braced};
use crate::inspection::judge;
use crate::options::{Given, Options};
use crate::prologue::{local, private_path, prologue};
use crate::suspension;
use crate::text::depends_on_types;
use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::parse::{ParseStream, Parser as _};
use syn::{Block, Expr, Generics, Lifetime, Stmt, Token};

/// Options whose values are expressions of the function around, which are evaluated where they stand.
const EVALUATED: [&str; 6] = ["device", "devices", "fields", "parent", "follows_from", "sample"];

/// What is to be measured.
enum Body {
    /// `{ … }`, perhaps with `unsafe` or a label before it.
    Plain { before: TokenStream, block: Group },
    /// `async { … }` or `async move { … }`.
    Async { before: TokenStream, block: Group },
}

/// Expands `track_memory_block!(input)`. If it is not to be measured, the options are not read.
///
/// With a mistake anywhere, the block is emitted as it was, so that what uses its value does not fail too.
pub(crate) fn block(input: TokenStream, measured: bool) -> TokenStream {
    let mut errors = Errors::default();
    let (options, body) = match split(input) {
        Ok(parts) => parts,
        Err(place) => {
            let message = "expected a block at the end, as in `track_memory_block!(\"name\", { … })`";
            return syn::Error::new_spanned(place, message).to_compile_error();
        }
    };
    if !measured {
        return unmeasured(&body);
    }
    let evaluates = Options::read(options.clone()).list.iter().any(|option| EVALUATED.contains(&option.key.as_str()));
    let args = read_options(options, &mut errors);
    // The options are read and checked as those of a function that knows nothing of arguments.
    let function = stand_in();
    if let Some(function) = &function {
        check(function, &args, &mut errors);
    }
    if let Body::Plain { block, .. } = &body {
        suspension::check(block, &mut errors);
    }
    match (errors.finish(), function, &body) {
        (None, Some(function), Body::Plain { before, block }) => {
            // A label is there to be left by.
            let is_labelled = matches!(before.clone().into_iter().next(), Some(TokenTree::Punct(_)));
            let is_asked_for = args.inspects_value() || (args.has_budget() && !stays_in_place(block));
            let is_passed_on = is_asked_for && (is_labelled || !never_ends(block));
            plain(&args, &function, evaluates, is_passed_on, &quote!(#before #block))
        }
        (None, Some(function), Body::Async { before, block }) => asynchronous(&args, &function, before, block),
        (errors, ..) => {
            let unmeasured = unmeasured(&body);
            quote_spanned!(Span::mixed_site()=> { #errors #unmeasured })
        }
    }
}

/// The block alone.
fn unmeasured(body: &Body) -> TokenStream {
    let (Body::Plain { before, block } | Body::Async { before, block }) = body;
    run(&quote!(#before #block))
}

/// The user's block as an expression that knows the type that is wanted of it.
///
/// The braces are of this crate's edition, in which the temporaries of a last expression end with its block, before the guard
/// and whatever the user's edition. The parentheses keep rustc from calling the user's braces one pair too many.
fn run(body: &TokenStream) -> TokenStream {
    quote_spanned!(Span::mixed_site()=> { (#body) })
}

/// The options, and the block behind the last comma; or where that should be.
fn split(input: TokenStream) -> Result<(TokenStream, Body), TokenStream> {
    let mut tokens: Vec<TokenTree> = input.into_iter().collect();
    if tokens.last().is_some_and(is_comma) {
        tokens.pop();
    }
    let begin = tokens.iter().rposition(is_comma).map_or(0, |comma| comma + 1);
    let last = opened(tokens.split_off(begin));
    let place = || -> TokenStream { last.iter().cloned().collect() };
    let (block, before) = last.split_last().ok_or_else(TokenStream::new)?;
    let block = braced(block.clone()).ok_or_else(place)?;
    let before: TokenStream = before.iter().cloned().collect();
    let body = match is_async.parse2(before.clone()).map_err(|_| place())? {
        true => Body::Async { before, block },
        false => Body::Plain { before, block },
    };
    Ok((tokens.into_iter().collect(), body))
}

fn is_comma(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',')
}

/// The tokens out of the invisible group around what a macro took for a `$block:expr`.
fn opened(tokens: Vec<TokenTree>) -> Vec<TokenTree> {
    match tokens.as_slice() {
        [TokenTree::Group(group)] if group.delimiter() == Delimiter::None => {
            opened(group.stream().into_iter().collect())
        }
        _ => tokens,
    }
}

/// Reads what may stand before a block: whether it makes an `async` block of it.
fn is_async(input: ParseStream<'_>) -> syn::Result<bool> {
    let is_async = input.parse::<Option<Token![async]>>()?.is_some();
    if is_async {
        input.parse::<Option<Token![move]>>()?;
    } else if input.parse::<Option<Lifetime>>()?.is_some() {
        input.parse::<Token![:]>()?;
    } else {
        input.parse::<Option<Token![unsafe]>>()?;
    }
    Ok(is_async)
}

/// Reads the options; a block without a name is called after its phase.
fn read_options(tokens: TokenStream, errors: &mut Errors) -> Args {
    let mut options = Options::read(tokens);
    options.list.retain(|option| {
        let message = match option.key.as_str() {
            "args" | "skip" | "skip_all" => "a block has no arguments; record what it uses by `fields(…)`",
            "future" => "`future` is for functions; an `async` block is measured as `async { … }`",
            _ => return true,
        };
        errors.push_at(&option.tokens, message);
        false
    });
    if !options.has("name") {
        match options.list.iter().find(|option| option.key == "phase") {
            Some(phase) => {
                let value: TokenStream = phase.tokens.clone().into_iter().skip(2).collect();
                // A phase that is wrong is wrong once.
                let mut found = Errors::default();
                Args::read(phase.tokens.clone(), &mut found);
                if let Some(word) = depends_on_types(value.clone(), &Generics::default()) {
                    errors.push_at(
                        value,
                        format!("the block needs a `name`: its phase depends on `{word}`, as no name may"),
                    );
                } else if found.finish().is_none() {
                    options.list.push(Given { key: "name".to_owned(), tokens: quote!(name = #value) });
                }
            }
            None => errors.push(syn::Error::new(
                Span::call_site(),
                "a block needs a name or a phase, as in `track_memory_block!(\"name\", { … })`",
            )),
        }
    }
    Args::read(options.tokens(), errors)
}

/// A function for what asks about one. Its return type is not known, as that of a block.
fn stand_in() -> Option<Function> {
    Function::read(quote_spanned!(Span::mixed_site()=> fn block() -> _ {}), &mut Errors::default())
}

/// The block in the place where it stands.
fn plain(args: &Args, function: &Function, evaluates: bool, is_passed_on: bool, body: &TokenStream) -> TokenStream {
    let private = private_path(args);
    let guard = local("__guard");
    let open = prologue(
        args,
        function,
        |parts| quote_spanned!(Span::mixed_site()=> #private::Guard::open(&mut #guard, #parts);),
    );
    // In a constant rustc refuses each call that it sees. This way it sees one, of a function that says why.
    let open = if evaluates { open } else { quote_spanned!(Span::mixed_site()=> #private::at_run_time(|| { #open });) };
    let run = run(body);
    let value = if is_passed_on {
        let judge = judge(args, &private, &function.signature);
        let pass = if args.has_budget() { "finished" } else { "returned" };
        let pass = Ident::new(pass, Span::mixed_site());
        quote_spanned!(Span::mixed_site()=> #private::#pass(&mut #guard, #run, #judge))
    } else {
        run
    };
    quote_spanned! {Span::mixed_site()=>
        {
            let mut #guard = #private::Guard::idle();
            #open
            #value
        }
    }
}

/// Whether the value of a block visibly is or holds what no function may be given on the way: a closure, which would not know
/// what signature is wanted of it, or a borrow, which may be one of a temporary.
fn stays_in_place(block: &Group) -> bool {
    fn stays(expression: &Expr) -> bool {
        match expression {
            Expr::Closure(_) | Expr::Reference(_) => true,
            Expr::Paren(inner) => stays(&inner.expr),
            Expr::Group(inner) => stays(&inner.expr),
            Expr::Block(inner) => is_last(&inner.block.stmts),
            Expr::Unsafe(inner) => is_last(&inner.block.stmts),
            Expr::Tuple(tuple) => tuple.elems.iter().any(stays),
            _ => false,
        }
    }
    fn is_last(statements: &[Stmt]) -> bool {
        matches!(statements.last(), Some(Stmt::Expr(last, None)) if stays(last))
    }
    Block::parse_within.parse2(block.stream()).is_ok_and(|statements| is_last(&statements))
}

/// The future of an `async` block.
fn asynchronous(args: &Args, function: &Function, before: &TokenStream, block: &Group) -> TokenStream {
    let private = private_path(args);
    let asked = local("__asked");
    let ask = prologue(args, function, |parts| {
        quote_spanned! {Span::mixed_site()=>
            #private::hand_over(#parts);
            #asked = true;
        }
    });
    let (outcome, run) = (judge(args, &private, &function.signature), run(&quote!(#block)));
    quote_spanned! {Span::mixed_site()=>
        #private::Tracked::new(
            #before {
                let mut #asked = false;
                #ask
                if #asked {
                    #private::Pause::once().await;
                }
                #run
            },
            #outcome,
        )
    }
}
