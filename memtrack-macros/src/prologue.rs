//! The code between the arguments and the body: the gates, the span, and what the scope needs.

use crate::args::Args;
use crate::function::Function;
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Ident, LitStr};

/// The path of the runtime's private module; everything that generated code names starts there.
pub(crate) fn private_path(args: &Args) -> TokenStream {
    match &args.krate {
        Some(krate) => quote_spanned!(Span::mixed_site()=> #krate::__private),
        None => quote_spanned!(Span::mixed_site()=> ::memtrack::__private),
    }
}

/// The same tokens, naming what they named, as if they stood at `place`: for calls that rustc shall report there.
pub(crate) fn at(tokens: &TokenStream, place: Span) -> TokenStream {
    let moved = tokens.clone().into_iter().map(|mut token| {
        token.set_span(token.span().located_at(place));
        token
    });
    moved.collect()
}

/// A variable of the generated code, which no name of the user can meet.
pub(crate) fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

/// The prologue. `open` is what to do with an activation that is to be measured; it is given the expressions for the
/// span, the name, the phase and the allocator, separated by commas.
pub(crate) fn prologue(args: &Args, function: &Function, open: impl FnOnce(TokenStream) -> TokenStream) -> TokenStream {
    let private = private_path(args);
    let (span, phase, phase_name) = (local("__span"), local("__phase"), local("__phase_name"));
    let name = name(args, function);
    let level = args
        .level
        .as_ref()
        .map_or_else(|| quote_spanned!(Span::mixed_site()=> #private::Level::INFO), |level| level.tokens(&private));
    let target = args.target.as_ref().map(|target| {
        let target = target.checked(&private);
        quote_spanned!(Span::mixed_site()=> target: #target,)
    });
    let described = args.name.as_ref().map_or_else(|| name.clone(), |name| name.checked(&private));
    let (bind_phase, phase_field) = match &args.phase {
        Some(given) => {
            let given = given.in_const(&private);
            let bind = quote_spanned! {Span::mixed_site()=>
                let #phase_name: #private::Name = #given;
                let #phase = #private::phase(#phase_name);
            };
            (bind, quote!(#phase_name))
        }
        None => (
            quote_spanned!(Span::mixed_site()=> let #phase = #private::no_phase();),
            quote_spanned!(Span::mixed_site()=> #private::Empty),
        ),
    };
    let allocator = match &args.device {
        Some(device) => {
            // At the user's expression, where an error about its type belongs.
            let place = Span::mixed_site().located_at(device.span());
            let private = at(&private, place);
            quote_spanned!(place=> #private::allocator_of(&(#device)))
        }
        None => quote_spanned!(Span::mixed_site()=> #private::current_allocator()),
    };
    let fields = args.fields.iter().map(|field| field.tokens(&private));
    let open = open(quote_spanned!(Span::mixed_site()=> #span, #name, #phase, #allocator));
    quote_spanned! {Span::mixed_site()=>
        if #private::enabled() {
            #bind_phase
            let #span = #private::scope_span!(#target #level, #described, #phase_field, #(#fields),*);
            if #private::measures(&#span, #phase) {
                #open
            }
        }
    }
}

/// The span's and the scope's name: the option's, or the function's without `r#`.
fn name(args: &Args, function: &Function) -> TokenStream {
    match &args.name {
        Some(name) => quote!(#name),
        None => {
            let ident = &function.signature.ident;
            let literal = LitStr::new(&ident.unraw().to_string(), Span::mixed_site());
            quote!(#literal)
        }
    }
}
