//! The `static` of each annotated function: its name, its place in the source, and the options known at compile time.

use crate::args::Args;
use crate::function::Function;
use crate::prologue::local;
use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::LitStr;
use syn::ext::IdentExt as _;

/// The definitions of the name's constant and of the call site's `static`.
///
/// One for all instantiations of a generic function, so that what is counted there adds up.
pub(crate) fn definition(args: &Args, function: &Function, private: &TokenStream, site: &Ident) -> TokenStream {
    let name = name(args, function);
    let options = options(args, private);
    let source = source(function);
    // Once, so that what is wrong with a constant is said once.
    let (name_constant, given) =
        (local("__MEMTRACK_NAME"), args.name.as_ref().map_or(name, |name| name.checked(private)));
    quote_spanned! {Span::mixed_site()=>
        const #name_constant: #private::Name = #given;
        static #site: #private::Site = #private::Site::new(#name_constant, #source, #options);
    }
}

/// The line of the function's name.
///
/// `line!` gives the attribute's, since it speaks of where the outermost expansion was asked for. A name from another file,
/// which only a macro can have brought, has a line that does not go with `file!`; there it has the last word.
fn line(name: &Ident) -> TokenStream {
    let fallback = quote_spanned!(Span::mixed_site()=> ::core::line!());
    if !proc_macro::is_available() {
        return fallback;
    }
    let (name, attribute) = (name.span().unwrap(), proc_macro::Span::call_site());
    if name.file() != attribute.file() {
        return fallback;
    }
    Literal::u32_suffixed(u32::try_from(name.line()).unwrap_or(u32::MAX)).into_token_stream()
}

/// The function's module, file and line, as three arguments.
pub(crate) fn source(function: &Function) -> TokenStream {
    let line = line(&function.signature.ident);
    quote_spanned!(Span::mixed_site()=> ::core::module_path!(), ::core::file!(), #line)
}

/// The options as a chain of constant calls.
fn options(args: &Args, private: &TokenStream) -> TokenStream {
    let limits = [
        ("max_delta", &args.max_delta),
        ("max_peak", &args.max_peak),
        ("max_allocs", &args.max_allocs),
        ("leak_check", &args.leak_check),
        ("min_delta", &args.min_delta),
    ];
    let limits = limits.into_iter().filter_map(|(word, limit)| {
        let limit = limit.as_ref()?.tokens(private);
        let method = Ident::new(word, Span::mixed_site());
        Some(quote_spanned!(Span::mixed_site()=> .#method(#limit)))
    });
    let on_exceed = args.on_exceed.as_ref().map(|(_, reaction)| {
        let reaction = reaction.tokens(private);
        quote_spanned!(Span::mixed_site()=> .on_exceed(#reaction))
    });
    let flags = [
        ("oom_event", args.oom.event),
        ("oom_snapshot", args.oom.snapshot),
        ("sampled", args.sample.is_some()),
        ("own_columns", args.columns.own),
        ("no_device_columns", !args.columns.device),
    ];
    let flags = flags.into_iter().filter(|(_, is_set)| *is_set).map(|(word, _)| {
        let method = Ident::new(word, Span::mixed_site());
        quote_spanned!(Span::mixed_site()=> .#method())
    });
    quote_spanned!(Span::mixed_site()=> #private::Options::new() #(#limits)* #on_exceed #(#flags)*)
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
