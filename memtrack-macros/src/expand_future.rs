//! Functions that return a future, with the option `future`: the scope opens with the call and stays open while the future
//! that it returned is polled, to completion or drop.
//!
//! The body runs in a closure called once, as its value must be seen to be wrapped. An `impl Future` becomes the runtime's
//! `Tracked`; any other type must stay what it is, so the runtime wraps it through a trait that boxed futures have.
//! Methods that `#[async_trait]` has rewritten are handled so without being asked.

use crate::args::Args;
use crate::expand::{bind_return_type, block_of_user, emit, return_edge, run_body};
use crate::function::Function;
use crate::inspection::judge;
use crate::prologue::{local, private_path, prologue};
use crate::signature::{BodyPlace, Opaque, rebind_parameters, returns_opaque_type, use_receiver};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Ident, ReturnType};

/// Expands a function that returns a future.
pub(crate) fn expand(args: &Args, function: Function) -> TokenStream {
    let private = private_path(args);
    let (call, handle, value) = (local("__call"), local("__handle"), local("__returned"));
    let open = prologue(
        args,
        &function,
        |parts| quote_spanned!(Span::mixed_site()=> #private::FutureCall::open(#handle, #parts);),
    );
    // The body's own future is wrapped in another type where that is opaque, and has the function's return type elsewhere.
    let opaque = returns_opaque_type(&function.signature);
    let (bind_return_type, edge) =
        if opaque != Opaque::No { Default::default() } else { (bind_return_type(&private), return_edge()) };
    let body = run_body(&function);
    let receiver = use_receiver(&function.signature);
    let judge = judge(args, &private, &function.signature);
    // At the return type, where an error about it belongs.
    let place = match &function.signature.output {
        ReturnType::Type(_, output) => Span::mixed_site().located_at(output.to_token_stream().span()),
        ReturnType::Default => Span::mixed_site(),
    };
    let wrap = match opaque {
        Opaque::No => "wrap",
        Opaque::Itself => "wrap_opaque",
        Opaque::Boxed => "wrap_boxed_opaque",
    };
    let wrap = Ident::new(wrap, place);
    // A method that takes the call by value, which no trait of the user can come before.
    let wrapped = quote_spanned!(place=> #call.#wrap(#value, #judge));
    let mut signature = function.signature.clone();
    let rebinds = rebind_parameters(&mut signature, BodyPlace::Inside);
    let inside = quote_spanned!(Span::mixed_site()=> #edge #receiver #rebinds #open #body);
    let closure = block_of_user(&function, &["move", "||"], inside);
    let statements = quote_spanned! {Span::mixed_site()=>
        #bind_return_type
        let mut #call = #private::FutureCall::idle();
        let #value = {
            let #handle = &mut #call;
            #private::called_once(#closure)()
        };
        return #wrapped;
    };
    emit(&function, &signature, statements)
}
