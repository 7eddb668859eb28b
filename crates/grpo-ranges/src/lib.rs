#![doc = include_str!("../README.md")]

use proc_macro::TokenStream;
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{
    Attribute, Data, DeriveInput, Expr, ExprLit, ExprUnary, Fields, Lit, LitStr, Meta,
    MetaNameValue, Token, UnOp,
};

/// Implements `grpo_data::Ranges`: checks `range(min = …, max = …)` and `inner(range(…))` of
/// `#[schemars(…)]`. Fields with an exclusive bound are left to code that says what the bound means.
#[proc_macro_derive(Ranges, attributes(schemars))]
pub fn ranges(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as DeriveInput);
    implementation(&input).unwrap_or_else(|error| error.into_compile_error()).into()
}

fn implementation(input: &DeriveInput) -> syn::Result<proc_macro2::TokenStream> {
    let fields = match &input.data {
        Data::Struct(data) => match &data.fields {
            Fields::Named(fields) => &fields.named,
            other => return Err(syn::Error::new_spanned(other, "fields have no names")),
        },
        _ => return Err(syn::Error::new_spanned(&input.ident, "only structs have ranges")),
    };
    let mut checks = Vec::new();
    for field in fields {
        let Some(name) = &field.ident else { continue };
        let range = Range::of(&field.attrs)?;
        if range.is_exclusive || (range.low.is_none() && range.high.is_none()) {
            continue;
        }
        let key = name.to_string();
        let key = key.trim_start_matches("r#");
        let low = range.low.map_or_else(|| quote!(f64::MIN), literal);
        let high = range.high.map_or_else(|| quote!(f64::MAX), literal);
        checks.push(quote!(::grpo_data::check_range(&self.#name, section, #key, #low..=#high)?;));
    }
    let name = &input.ident;
    let (generics, types, bounds) = input.generics.split_for_impl();
    Ok(quote! {
        impl #generics ::grpo_data::Ranges for #name #types #bounds {
            fn check_ranges(&self, section: &str) -> ::core::result::Result<(), ::grpo_data::ConfigFault> {
                #(#checks)*
                ::core::result::Result::Ok(())
            }
        }
    })
}

/// Returns the value of a number in an attribute.
fn number(value: &Expr) -> syn::Result<f64> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => number.base10_parse(),
        Expr::Lit(ExprLit { lit: Lit::Float(number), .. }) => number.base10_parse(),
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => Ok(-self::number(expr)?),
        _ => Err(syn::Error::new_spanned(value, "expected a number")),
    }
}

/// Returns the tokens of a number. There are no negative literals.
fn literal(number: f64) -> proc_macro2::TokenStream {
    let absolute = number.abs();
    if number < 0.0 { quote!(-#absolute) } else { quote!(#absolute) }
}

/// The range of a field.
#[derive(Default)]
struct Range {
    low: Option<f64>,
    high: Option<f64>,
    is_exclusive: bool,
}

impl Range {
    fn of(attributes: &[Attribute]) -> syn::Result<Self> {
        let mut range = Self::default();
        for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("schemars"))
        {
            let parts =
                attribute.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)?;
            for part in &parts {
                range.add(part)?;
            }
        }
        Ok(range)
    }

    fn add(&mut self, part: &Meta) -> syn::Result<()> {
        let Meta::List(list) = part else { return Ok(()) };
        if list.path.is_ident("inner") {
            return self.add(&list.parse_args()?);
        }
        if list.path.is_ident("extend") {
            let pairs =
                list.parse_args_with(Punctuated::<Extension, Token![,]>::parse_terminated)?;
            self.is_exclusive |= pairs.iter().any(|pair| pair.key.value().starts_with("exclusive"));
            return Ok(());
        }
        if !list.path.is_ident("range") {
            return Ok(());
        }
        let bounds =
            list.parse_args_with(Punctuated::<MetaNameValue, Token![,]>::parse_terminated)?;
        for MetaNameValue { path, value, .. } in bounds {
            match path.to_token_stream().to_string().as_str() {
                "min" => self.low = Some(number(&value)?),
                "max" => self.high = Some(number(&value)?),
                _ => return Err(syn::Error::new_spanned(path, "expected `min` or `max`")),
            }
        }
        Ok(())
    }
}

/// `"key" = value`.
struct Extension {
    key: LitStr,
}

impl Parse for Extension {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let key = input.parse()?;
        input.parse::<Token![=]>()?;
        input.parse::<Expr>()?;
        Ok(Self { key })
    }
}
