//! Functions that run to their end in one call.
//!
//! The guard is the first variable, so it is dropped last; the arguments are bound again after it. The body stands in
//! the function itself, so that `return`, `?`, lifetimes and `#[track_caller]` work as without the attribute. Only where
//! that cannot be exact it moves into a closure that is called once: with `err` and `ret`, which must see the value of
//! every `return`, with a budget, which may panic once everything the call owns is dropped, and with a `self` taken by
//! value, which cannot be bound again.

use crate::args::Args;
use crate::early_return;
use crate::expand::{bind_return_type, block_of_user, emit, last_name, return_edge, run_body, run_body_to_value};
use crate::function::Function;
use crate::inspection::{inspection, judge};
use crate::prologue::{local, private_path, prologue};
use crate::returned_closure::{returns_unstated_closure, state_signatures};
use crate::signature::{
    BodyPlace, is_parameter, never_returns, owns_receiver, rebind_parameters, stated_return_type, use_receiver,
};
use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;

/// Where the body stands.
enum Placement {
    /// In the function.
    Inline,
    /// In a closure called once.
    Closure,
    /// In the function although the returned value asks for the closure, as `#[track_caller]` forbids it.
    InlineWithValue,
}

/// Expands a function that is not `async`.
pub(crate) fn expand(args: &Args, function: Function) -> TokenStream {
    let placement = if never_returns(&function.signature) {
        Placement::Inline
    } else if function.has_attribute("track_caller") {
        if args.inspects_value() { Placement::InlineWithValue } else { Placement::Inline }
    } else if returns_unstated_closure(&function.signature) {
        Placement::Inline
    } else if args.inspects_value() || args.has_budget() || owns_receiver(&function.signature) {
        Placement::Closure
    } else {
        Placement::Inline
    };
    match placement {
        Placement::Inline => inline(args, function),
        Placement::Closure => closure(args, function),
        Placement::InlineWithValue => inline_with_value(args, function),
    }
}

fn inline(args: &Args, function: Function) -> TokenStream {
    let private = private_path(args);
    let guard = local("__guard");
    let open = prologue(
        args,
        &function,
        |parts| quote_spanned!(Span::mixed_site()=> #private::Guard::open(&mut #guard, #parts);),
    );
    emit_inline(&private, &function, &guard, &open, &run_body(&function))
}

fn closure(args: &Args, mut function: Function) -> TokenStream {
    let private = private_path(args);
    state_signatures(&mut function, &private);
    let (guard, handle, value) = (local("__guard"), local("__handle"), local("__returned"));
    let open =
        prologue(args, &function, |parts| quote_spanned!(Span::mixed_site()=> #private::Guard::open(#handle, #parts);));
    let (bind_return_type, edge, body) = (bind_return_type(&private), return_edge(), run_body(&function));
    let receiver = use_receiver(&function.signature);
    let inspect = args.inspects_value().then(|| inspect(args, &private, &function, &guard, &value));
    // Here and not where the guard is dropped: a budget's panic must leave the value to be dropped.
    let finish = args.has_budget().then(|| quote_spanned!(Span::mixed_site()=> #private::Guard::finish(&mut #guard);));
    let mut signature = function.signature.clone();
    let rebinds = rebind_parameters(&mut signature, BodyPlace::Inside);
    // An argument that a function returns is more than what it points to, says clippy's `ptr_arg`, but not of a closure.
    let returned = last_name(&function).filter(|name| is_parameter(&signature, &name.to_string()));
    let returned = returned.map(|name| quote_spanned!(Span::mixed_site()=> let _ = &#name;));
    let inside = quote_spanned!(Span::mixed_site()=> #edge #receiver #rebinds #returned #open #body);
    let closure = block_of_user(&function, &["move", "||"], inside);
    let statements = quote_spanned! {Span::mixed_site()=>
        #bind_return_type
        let mut #guard = #private::Guard::idle();
        let #value = {
            let #handle = &mut #guard;
            #private::called_once(#closure)()
        };
        #inspect
        #finish
        return #value;
    };
    emit(&function, &signature, statements)
}

fn inline_with_value(args: &Args, mut function: Function) -> TokenStream {
    let private = private_path(args);
    let guard = local("__guard");
    // What leaves without a word has failed: it left by `?`.
    let fails = args
        .err
        .as_ref()
        .map(|_| quote_spanned!(Span::mixed_site()=> #private::Guard::left_early_with_error(&mut #guard);));
    let open = prologue(
        args,
        &function,
        |parts| quote_spanned!(Span::mixed_site()=> #private::Guard::open(&mut #guard, #parts); #fails),
    );
    let return_type = stated_return_type(&function.signature);
    early_return::report(&mut function.body, &private, &guard, &judge(args, &private, &function.signature));
    let body = run_body_to_value(&function, &return_type, |value| {
        let inspect = inspect(args, &private, &function, &guard, value);
        quote_spanned!(Span::mixed_site()=> #[allow(unreachable_code)] { #inspect })
    });
    emit_inline(&private, &function, &guard, &open, &body)
}

/// Tells of a returned value, and tells the guard how it looks.
fn inspect(args: &Args, private: &TokenStream, function: &Function, guard: &Ident, returned: &Ident) -> TokenStream {
    let value = local("__inspected");
    let inspection = inspection(args, private, &function.signature, &value);
    let (outcome, aside) = (local("__outcome"), local("__aside"));
    // Telling runs foreign code, which is not the function's.
    let step_aside =
        args.tells_value().then(|| quote_spanned!(Span::mixed_site()=> let #aside = #private::Guard::aside(&#guard);));
    quote_spanned! {Span::mixed_site()=>
        if #private::Guard::is_open(&#guard) {
            let #outcome = {
                #step_aside
                let #value = &#returned;
                #inspection
            };
            #private::Guard::ends_with(&mut #guard, #outcome);
        }
    }
}

/// The guard, the parameters inside it, and the body behind them.
fn emit_inline(
    private: &TokenStream,
    function: &Function,
    guard: &Ident,
    open: &TokenStream,
    body: &TokenStream,
) -> TokenStream {
    let mut signature = function.signature.clone();
    let rebinds = rebind_parameters(&mut signature, BodyPlace::Function);
    let statements = quote_spanned! {Span::mixed_site()=>
        let mut #guard = #private::Guard::idle();
        #rebinds
        #open
        #body
    };
    emit(function, &signature, statements)
}
