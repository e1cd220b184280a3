//! Macros of another library that uses memtrack: they write `#[track_memory]` on functions of their user, who knows
//! nothing of memtrack.
#![forbid(unsafe_code)]

use proc_macro::{Group, Span, TokenStream, TokenTree};

/// Annotates a function, by tokens that all stand at the place of the macro's call.
#[proc_macro_attribute]
pub fn measured(options: TokenStream, item: TokenStream) -> TokenStream {
    let mut all: TokenStream =
        "crate = ::shape_support::memtrack,".parse().unwrap_or_else(|error| panic!("the crate's path: {error}"));
    all.extend(options);
    let attribute = format!("#[::shape_support::memtrack::track_memory({all})]");
    let mut output: TokenStream = attribute.parse().unwrap_or_else(|error| panic!("the attribute: {error}"));
    output.extend(item);
    output
}

/// Emits what it is given as its own: every token stands at the place of the macro's call, and its names are the
/// macro's.
#[proc_macro]
pub fn emitted(items: TokenStream) -> TokenStream {
    items.into_iter().map(as_own).collect()
}

fn as_own(mut token: TokenTree) -> TokenTree {
    if let TokenTree::Group(group) = &token {
        token = Group::new(group.delimiter(), group.stream().into_iter().map(as_own).collect()).into();
    }
    token.set_span(Span::mixed_site());
    token
}
