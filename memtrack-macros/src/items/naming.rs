//! What the methods of an annotated block are called: `Type::method`.

use super::member::Member;
use proc_macro2::{Span, TokenTree};
use quote::quote;
use syn::ext::IdentExt as _;
use syn::{Ident, ItemImpl, LitStr, Path, Type, TypeParamBound};

/// What the names of a block's methods begin with: the `impl` block's type without path and generics, or the trait.
///
/// None for a module, and for a type that has no name, such as a slice or a tuple.
pub(super) fn prefix(block: &Member) -> Option<String> {
    let head = &block.tokens;
    let mut words = head.iter().filter_map(|token| if let TokenTree::Ident(word) = token { Some(word) } else { None });
    let keyword = words.by_ref().find(|word| ["impl", "trait", "mod"].iter().any(|keyword| word == keyword))?;
    if keyword == "trait" {
        return words.next().map(|name| name.unraw().to_string());
    }
    if keyword == "mod" {
        return None;
    }
    let head: ItemImpl = syn::parse2(quote!(#(#head)* {})).ok()?;
    type_name(&head.self_ty)
}

/// The name of a method, as a literal that no error will point at.
pub(super) fn method(prefix: &str, method: &Ident) -> Option<LitStr> {
    Some(LitStr::new(&format!("{prefix}::{}", method.unraw()), Span::mixed_site()))
}

fn type_name(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(ty) => last_word(&ty.path),
        Type::Reference(ty) => type_name(&ty.elem),
        Type::Paren(ty) => type_name(&ty.elem),
        // What a macro took for a `$type:ty`.
        Type::Group(ty) => type_name(&ty.elem),
        Type::TraitObject(ty) => ty.bounds.iter().find_map(|bound| match bound {
            TypeParamBound::Trait(bound) => last_word(&bound.path),
            _ => None,
        }),
        _ => None,
    }
}

fn last_word(path: &Path) -> Option<String> {
    path.segments.last().map(|segment| segment.ident.unraw().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proc_macro2::TokenStream;

    fn prefix_of(item: &str) -> Option<String> {
        let tokens: TokenStream = item.parse().unwrap();
        prefix(&Member::read_one(tokens).unwrap())
    }

    #[test]
    fn the_last_word_of_the_type() {
        for item in [
            "impl Layer {}",
            "impl<'a, T: Into<u8>, const N: usize> nn::Layer<'a, T, { N + 1 }> where T: Copy {}",
            "unsafe impl<T> crate::Forward<T> for &'static mut self::Layer<T> {}",
            "default impl Forward for (Layer) {}",
            "impl Forward for <A as B>::Layer {}",
            "impl dyn Layer + Send {}",
            "impl r#Layer {}",
            "pub(crate) unsafe trait Layer: Sized where Self: Copy {}",
        ] {
            assert_eq!(prefix_of(item).as_deref(), Some("Layer"), "{item}");
        }
    }

    #[test]
    fn none_without_a_name() {
        for item in ["impl Forward for [u8] {}", "impl Forward for (A, B) {}", "mod layer {}"] {
            assert_eq!(prefix_of(item), None, "{item}");
        }
    }
}
