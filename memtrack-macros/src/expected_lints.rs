//! `#[expect(…)]` of a lint that has nothing to report any more once the function is measured.
//!
//! Such an expectation would be reported as unfulfilled, a warning that the function does not have without the attribute.
//! It becomes an `#[allow(…)]`, which is as right with the attribute as without.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

/// Clippy's lints that do not see what they look for in a measured function.
const SILENT: [&str; 12] = [
    "boxed_local",
    "explicit_auto_deref",
    "implicit_return",
    "manual_async_fn",
    "missing_const_for_fn",
    "needless_pass_by_ref_mut",
    "needless_pass_by_value",
    "only_used_in_recursion",
    "unnecessary_wraps",
    "unused_async",
    "unused_self",
    "unwrap_in_result",
];

/// rustc's lints of that kind.
const SILENT_OF_RUSTC: [&str; 1] = ["unconditional_recursion"];

/// The attributes of a function, with the expectations of silent lints turned into permissions.
pub(crate) fn relaxed(attributes: &[Attribute]) -> Vec<TokenStream> {
    attributes.iter().map(|attribute| split(attribute).unwrap_or_else(|| attribute.to_token_stream())).collect()
}

/// The two attributes that one with silent lints becomes; none if it has no such lint, or is not understood.
fn split(attribute: &Attribute) -> Option<TokenStream> {
    if !attribute.path().is_ident("expect") {
        return None;
    }
    let listed = attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated).ok()?;
    let (silent, kept): (Vec<Meta>, Vec<Meta>) = listed.into_iter().partition(is_silent);
    if silent.is_empty() {
        return None;
    }
    let allow = quote_spanned!(Span::mixed_site()=> #[allow(#(#silent),*)]);
    // A reason alone expects nothing.
    if kept.iter().all(|meta| meta.path().is_ident("reason")) {
        return Some(allow);
    }
    let mut expect = attribute.clone();
    if let Meta::List(list) = &mut expect.meta {
        list.tokens = quote!(#(#kept),*);
    }
    Some(quote!(#expect #allow))
}

fn is_silent(meta: &Meta) -> bool {
    let Meta::Path(path) = meta else { return false };
    let words: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
    match words.as_slice() {
        [lint] => SILENT_OF_RUSTC.contains(&lint.as_str()),
        [tool, lint] => tool == "clippy" && SILENT.contains(&lint.as_str()),
        _ => false,
    }
}
