//! `async fn`: the body becomes an async block inside the runtime's `Tracked`, which enters the span and owns the
//! thread's allocations at each poll, and drops the block, arguments and all, before it reads the figures.
//!
//! The arguments are bound again inside the block, since only there they can borrow from the body. `device` and
//! `fields` see them there too. So the block asks for its scope itself: it hands the request over and stops once, and
//! `Tracked` opens the scope and polls on at once.

use crate::args::Args;
use crate::expand::{bind_return_type, block_of_user, emit, return_edge, run_body};
use crate::function::Function;
use crate::inspection::judge;
use crate::prologue::{local, private_path, prologue};
use crate::returned_closure::state_signatures;
use crate::signature::{BodyPlace, may_return_future, never_returns, rebind_parameters, use_receiver};
use proc_macro2::{Span, TokenStream};
use quote::quote_spanned;

/// Expands an `async fn`.
pub(crate) fn expand(args: &Args, mut function: Function) -> TokenStream {
    let private = private_path(args);
    state_signatures(&mut function, &private);
    let asked = local("__asked");
    let ask = prologue(args, &function, |parts| {
        quote_spanned! {Span::mixed_site()=>
            #private::hand_over(#parts);
            #asked = true;
        }
    });
    // The stop is outside of the block that makes the span, which would else be kept in the future.
    let open = quote_spanned! {Span::mixed_site()=>
        let mut #asked = false;
        #ask
        if #asked {
            #private::Pause::once().await;
        }
    };
    let receiver = use_receiver(&function.signature);
    let mut signature = function.signature.clone();
    let rebinds = rebind_parameters(&mut signature, BodyPlace::Inside);
    let body = run_body(&function);
    let statements = if never_returns(&function.signature) {
        let inside = quote_spanned!(Span::mixed_site()=> #receiver #rebinds #open #body);
        let block = block_of_user(&function, &["async", "move"], inside);
        quote_spanned!(Span::mixed_site()=> match #private::Tracked::never(#block).await {})
    } else {
        let (bind_return_type, edge) = (bind_return_type(&private), return_edge());
        let inside = quote_spanned!(Span::mixed_site()=> #edge #receiver #rebinds #open #body);
        let block = block_of_user(&function, &["async", "move"], inside);
        // A future that the function returns is for its caller to await; one that a block gives would be forgotten.
        let yields = may_return_future(&function.signature)
            .then(|| quote_spanned!(Span::mixed_site()=> #[allow(clippy::async_yields_async)]));
        let outcome = judge(args, &private, &function.signature);
        quote_spanned! {Span::mixed_site()=>
            #bind_return_type
            #yields
            return #private::Tracked::new(#block, #outcome).await;
        }
    };
    emit(&function, &signature, statements)
}
