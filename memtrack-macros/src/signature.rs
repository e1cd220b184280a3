//! What an expansion needs to know of a signature, and the parameters' way from the signature into the body.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens as _, format_ident, quote_spanned};
use syn::spanned::Spanned as _;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, FnArg, GenericArgument, Ident, Lifetime, Pat, PatIdent, PathArguments, ReceiverKind, ReturnType,
    Signature, Token, Type, TypeParamBound,
};

/// Whether the function's return type is `!`.
pub(crate) fn never_returns(signature: &Signature) -> bool {
    matches!(&signature.output, ReturnType::Type(_, output) if is_never(output))
}

fn is_never(ty: &Type) -> bool {
    match ty {
        Type::Never(_) => true,
        Type::Paren(inner) => is_never(&inner.elem),
        // What a macro took for a `$type:ty`.
        Type::Group(inner) => is_never(&inner.elem),
        _ => false,
    }
}

/// A future that a function returns, as far as its written type tells.
pub(crate) struct ReturnedFuture<'a> {
    /// Whether `#[async_trait]` has written the signature: the function is an `async fn` to its author.
    pub(crate) is_of_async_trait: bool,
    /// What it gives, where that is written.
    pub(crate) output: Option<&'a Type>,
}

/// The future in the function's return type: a `Pin<Box<dyn Future>>` or an `impl Future`.
pub(crate) fn returned_future(signature: &Signature) -> Option<ReturnedFuture<'_>> {
    let ReturnType::Type(_, output) = &signature.output else { return None };
    let bounds = match &**output {
        Type::ImplTrait(opaque) => &opaque.bounds,
        boxed => match argument_of(boxed, "Pin").and_then(|boxed| argument_of(boxed, "Box")) {
            Some(Type::TraitObject(object)) => &object.bounds,
            _ => return None,
        },
    };
    let future = bounds.iter().find_map(|bound| match bound {
        TypeParamBound::Trait(bound) => bound.path.segments.last().filter(|segment| segment.ident == "Future"),
        _ => None,
    })?;
    let output = match &future.arguments {
        PathArguments::AngleBracketed(arguments) => arguments.args.iter().find_map(|argument| match argument {
            GenericArgument::AssocType(assigned) if assigned.ident == "Output" => Some(&assigned.ty),
            _ => None,
        }),
        _ => None,
    };
    let is_of_async_trait = bounds
        .iter()
        .any(|bound| matches!(bound, TypeParamBound::Lifetime(lifetime) if lifetime.ident == "async_trait"));
    Some(ReturnedFuture { is_of_async_trait, output })
}

/// Whether what the function returns could be a future, as far as the way its type is written tells.
pub(crate) fn may_return_future(signature: &Signature) -> bool {
    const NEVER_FUTURES: [&str; 8] = ["Result", "Option", "Vec", "String", "HashMap", "BTreeMap", "Rc", "Arc"];
    fn may_be_future(ty: &Type) -> bool {
        match ty {
            Type::Array(_) | Type::Never(_) | Type::Ptr(_) | Type::FnPtr(_) | Type::Slice(_) | Type::Tuple(_) => false,
            Type::Reference(inner) => inner.mutability.is_some() && may_be_future(&inner.elem),
            Type::Paren(inner) => may_be_future(&inner.elem),
            Type::Group(inner) => may_be_future(&inner.elem),
            Type::Path(path) => {
                !is_plain(ty)
                    && path.path.segments.last().is_none_or(|last| NEVER_FUTURES.iter().all(|name| last.ident != name))
            }
            _ => true,
        }
    }
    matches!(&signature.output, ReturnType::Type(_, output) if may_be_future(output))
}

/// Where the function's return type is opaque.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Opaque {
    /// Nowhere that matters.
    No,
    /// It is an `impl Trait`.
    Itself,
    /// It is a `Pin<Box<impl Trait>>`.
    Boxed,
}

/// Whether the function's return type is an `impl Trait` or a box of one.
pub(crate) fn returns_opaque_type(signature: &Signature) -> Opaque {
    fn opaque(ty: &Type) -> Opaque {
        match ty {
            Type::ImplTrait(_) => Opaque::Itself,
            Type::Paren(inner) => opaque(&inner.elem),
            Type::Group(inner) => opaque(&inner.elem),
            boxed => match argument_of(boxed, "Pin").and_then(|boxed| argument_of(boxed, "Box")).map(opaque) {
                Some(Opaque::Itself) => Opaque::Boxed,
                _ => Opaque::No,
            },
        }
    }
    match &signature.output {
        ReturnType::Type(_, output) => opaque(output),
        ReturnType::Default => Opaque::No,
    }
}

/// The first type argument of a type whose path ends in `name`.
fn argument_of<'a>(ty: &'a Type, name: &str) -> Option<&'a Type> {
    let Type::Path(path) = ty else { return None };
    let segment = path.path.segments.last().filter(|segment| segment.ident == name)?;
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else { return None };
    arguments.args.iter().find_map(|argument| if let GenericArgument::Type(ty) = argument { Some(ty) } else { None })
}

/// Whether a parameter is a variable of this name.
pub(crate) fn is_parameter(signature: &Signature, name: &str) -> bool {
    signature.inputs.iter().any(|input| {
        matches!(input, FnArg::Typed(parameter)
            if matches!(&*parameter.pat, Pat::Ident(pattern) if pattern.ident == name))
    })
}

/// The return type as a `let` can state it: each `impl Trait` becomes `_`, none becomes `()`, and rustc finds the lifetimes,
/// since naming one would be a use of it in the body.
pub(crate) fn stated_return_type(signature: &Signature) -> TokenStream {
    struct Erase<'a>(&'a Signature);
    impl VisitMut for Erase<'_> {
        fn visit_type_mut(&mut self, node: &mut Type) {
            if let Type::ImplTrait(_) = node {
                *node = Type::Verbatim(quote_spanned!(Span::mixed_site()=> _));
            } else {
                visit_mut::visit_type_mut(self, node);
            }
        }
        fn visit_lifetime_mut(&mut self, node: &mut Lifetime) {
            // Others are `'static`, or bound in the type itself.
            if self.0.generics.lifetimes().any(|parameter| parameter.lifetime == *node) {
                *node = Lifetime::new("'_", node.span());
            }
        }
    }
    match &signature.output {
        ReturnType::Default => quote_spanned!(Span::mixed_site()=> ()),
        ReturnType::Type(_, output) => {
            let mut output = output.clone();
            Erase(signature).visit_type_mut(&mut output);
            output.into_token_stream()
        }
    }
}

/// Whether the receiver owns something that dies with the call: `self`, `self: Box<Self>` and the like, but not
/// `&self`, `self: &Arc<Self>` or `self: Pin<&mut Self>`.
pub(crate) fn owns_receiver(signature: &Signature) -> bool {
    signature.receiver().is_some_and(|receiver| match &receiver.kind {
        ReceiverKind::Reference(..) => false,
        ReceiverKind::Typed(_, ty) => !is_borrow(ty),
        _ => true,
    })
}

fn is_borrow(ty: &Type) -> bool {
    match ty {
        Type::Reference(_) => true,
        Type::Paren(inner) => is_borrow(&inner.elem),
        Type::Group(inner) => is_borrow(&inner.elem),
        Type::Path(_) => argument_of(ty, "Pin").is_some_and(is_borrow),
        _ => false,
    }
}

/// A use of the receiver as a whole, so that a closure or an async block owns all of it, or nothing without a receiver.
///
/// The token is the receiver's own: inside `macro_rules!` a new `self` would name another variable.
pub(crate) fn use_receiver(signature: &Signature) -> TokenStream {
    signature.receiver().map_or_else(TokenStream::new, |receiver| {
        let this = &receiver.self_token;
        quote_spanned!(Span::mixed_site()=> let _ = &#this;)
    })
}

/// Where a body goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyPlace {
    /// It stays in the function.
    Function,
    /// Into a closure or an async block, which then owns what it uses.
    Inside,
}

/// Makes the parameters of the signature plain names, and returns the `let`s that bind the user's patterns again.
///
/// Bound again after the guard, the arguments are dropped before it, in the order of an ordinary function: later
/// parameters first, and of one parameter the pattern's variables before what the pattern leaves behind. That leftover
/// is why a pattern takes two steps. What has nothing to drop stays the parameter it is, for the lints that look at
/// parameters, where that is the same to the body.
pub(crate) fn rebind_parameters(signature: &mut Signature, place: BodyPlace) -> TokenStream {
    let mut rebinds = TokenStream::new();
    for (index, input) in signature.inputs.iter_mut().enumerate() {
        let FnArg::Typed(parameter) = input else { continue };
        let stays = match place {
            BodyPlace::Function => is_plain(&parameter.ty),
            BodyPlace::Inside => stays_inside(&parameter.pat, &parameter.ty),
        };
        if stays {
            continue;
        }
        let (on_parameter, on_let) = split_attributes(&parameter.attrs);
        parameter.attrs = on_parameter;
        let simple = match &mut *parameter.pat {
            Pat::Ident(PatIdent { by_ref: None, subpat: None, mutability, ident, .. }) => {
                Some((mutability.take(), ident.clone()))
            }
            _ => None,
        };
        rebinds.extend(match simple {
            Some((mutability, ident)) => rebind_name(&on_let, mutability, &ident),
            None => rebind_pattern(&on_let, &mut parameter.pat, index),
        });
    }
    rebinds
}

/// Whether a parameter of a body that is moved stays the parameter it is: a borrow or a pointer by its name, and what is
/// bound to none.
///
/// Of a number that is captured, rustc and clippy say other things. A variable that the body changes would be changed in a
/// copy, and rustc says so.
fn stays_inside(pattern: &Pat, ty: &Type) -> bool {
    match pattern {
        Pat::Wild(_) => is_plain(ty),
        Pat::Ident(PatIdent { by_ref: None, subpat: None, mutability: None, .. }) => is_pointer(ty),
        _ => false,
    }
}

fn is_pointer(ty: &Type) -> bool {
    match ty {
        Type::Reference(_) | Type::Ptr(_) => true,
        Type::Paren(inner) => is_pointer(&inner.elem),
        Type::Group(inner) => is_pointer(&inner.elem),
        _ => false,
    }
}

/// Whether values of this type have nothing to drop, as far as the way it is written tells.
fn is_plain(ty: &Type) -> bool {
    const PLAIN: [&str; 16] = [
        "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize", "f32", "f64", "bool",
        "char",
    ];
    match ty {
        Type::Reference(_) | Type::Ptr(_) | Type::FnPtr(_) => true,
        Type::Path(path) => PLAIN.iter().any(|name| path.qself.is_none() && path.path.is_ident(name)),
        Type::Tuple(tuple) => tuple.elems.iter().all(is_plain),
        Type::Array(array) => is_plain(&array.elem),
        Type::Paren(inner) => is_plain(&inner.elem),
        Type::Group(inner) => is_plain(&inner.elem),
        _ => false,
    }
}

fn rebind_name(attributes: &[Attribute], mutability: Option<Token![mut]>, ident: &Ident) -> TokenStream {
    // The one use of the parameter that the user did not write.
    let value = if ident.to_string().starts_with('_') {
        quote_spanned!(Span::mixed_site()=> { #[allow(clippy::used_underscore_binding)] { #ident } })
    } else {
        ident.to_token_stream()
    };
    quote_spanned! {Span::mixed_site()=>
        #[allow(clippy::shadow_same)]
        #(#attributes)*
        let #mutability #ident = #value;
    }
}

fn rebind_pattern(attributes: &[Attribute], pattern: &mut Pat, index: usize) -> TokenStream {
    // Lints look for the parentheses before the first parameter.
    let place = Span::mixed_site().located_at(pattern.span());
    let name = format_ident!("__arg{index}", span = place);
    let plain =
        Pat::Ident(PatIdent { attrs: Vec::new(), by_ref: None, mutability: None, ident: name.clone(), subpat: None });
    let pattern = std::mem::replace(pattern, plain);
    quote_spanned! {Span::mixed_site()=>
        #(#attributes)* let #name = #name;
        #(#attributes)* let #pattern = #name;
    }
}

/// A parameter's attributes: those that stay on it, and those for its `let`.
///
/// A lint's level moves, since the variable it speaks of is now the `let`'s; what decides whether the parameter exists
/// is on both.
fn split_attributes(attributes: &[Attribute]) -> (Vec<Attribute>, Vec<Attribute>) {
    const LINTS: [&str; 5] = ["allow", "expect", "warn", "deny", "forbid"];
    let names = |attribute: &Attribute, words: &[&str]| words.iter().any(|word| attribute.path().is_ident(word));
    (
        attributes.iter().filter(|attribute| !names(attribute, &LINTS)).cloned().collect(),
        attributes
            .iter()
            .filter(|attribute| names(attribute, &LINTS) || names(attribute, &["cfg", "cfg_attr"]))
            .cloned()
            .collect(),
    )
}
