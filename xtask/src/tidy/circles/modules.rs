//! The modules of a crate, and the paths that each of them names.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemUse, Macro, UseTree, Visibility};

/// A module path below the crate's root.
pub(super) type ModulePath = Vec<String>;

/// The modules of one crate, each of one file. Modules of tests are left out.
pub(super) struct Crate {
    pub(super) modules: BTreeMap<ModulePath, Module>,
}

/// The paths in one module.
#[derive(Default)]
pub(super) struct Module {
    /// Paths as they are written: the first segment may be `crate`, `self`, `super` or a name.
    pub(super) paths: Vec<ModulePath>,
    /// Re-exported names with their paths.
    pub(super) exports: BTreeMap<String, ModulePath>,
    /// Every identifier that the module uses outside imports.
    pub(super) identifiers: BTreeSet<String>,
}

impl Crate {
    /// Parses every file below a source folder.
    pub(super) fn parse(files: &BTreeMap<String, String>, source: &str) -> Result<Self> {
        let mut modules = BTreeMap::new();
        for (path, text) in files {
            let inner = path
                .strip_prefix(source)
                .and_then(|rest| rest.strip_prefix('/'))
                .and_then(|rest| rest.strip_suffix(".rs"));
            let Some(inner) = inner else { continue };
            let mut name: ModulePath = inner.split('/').map(str::to_owned).collect();
            if matches!(
                name.last().map(String::as_str),
                Some("mod" | "lib" | "main")
            ) {
                name.pop();
            }
            if name.iter().any(|part| part == "tests") {
                continue;
            }
            let file = syn::parse_file(text).with_context(|| path.clone())?;
            let mut module = Module::default();
            module.visit_file(&file);
            modules.insert(name, module);
        }
        Ok(Self { modules })
    }
}

impl Module {
    fn add_import(&mut self, import: &ItemUse) {
        let is_export = !matches!(import.vis, Visibility::Inherited);
        let mut leaves = Vec::new();
        flatten(&import.tree, &mut Vec::new(), &mut leaves);
        for (name, path) in leaves {
            match name {
                Some(name) if is_export => drop(self.exports.insert(name, path)),
                _ => self.paths.push(path),
            }
        }
    }

    /// Paths in the arguments of a macro, which are not parsed.
    fn add_tokens(&mut self, tokens: TokenStream) {
        let mut path: ModulePath = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    self.identifiers.insert(ident.to_string());
                    if colons != 2 {
                        self.add_path(std::mem::take(&mut path));
                    }
                    path.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.add_path(std::mem::take(&mut path));
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.add_tokens(group.stream());
                    }
                }
            }
        }
        self.add_path(path);
    }

    fn add_path(&mut self, path: ModulePath) {
        if path.len() > 1 {
            self.paths.push(path);
        }
    }
}

impl<'ast> Visit<'ast> for Module {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Mod(inner) => &inner.attrs,
            Item::Fn(inner) => &inner.attrs,
            Item::Impl(inner) => &inner.attrs,
            Item::Use(inner) => &inner.attrs,
            Item::Const(inner) => &inner.attrs,
            _ => &Vec::new(),
        };
        if attributes.iter().any(is_test) {
            return;
        }
        match item {
            Item::Use(import) => self.add_import(import),
            Item::Mod(inner) if inner.content.is_none() => {}
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path
            .segments
            .iter()
            .map(|segment| segment.ident.to_string());
        let segments: ModulePath = segments.collect();
        self.identifiers.extend(segments.first().cloned());
        self.add_path(segments);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast Macro) {
        self.visit_path(&call.path);
        self.add_tokens(call.tokens.clone());
    }

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute
            .parse_args::<syn::Path>()
            .is_ok_and(|condition| condition.is_ident("test"))
}

/// The leaves of an import with the names that they bind; a glob binds none.
fn flatten(
    tree: &UseTree,
    prefix: &mut ModulePath,
    leaves: &mut Vec<(Option<String>, ModulePath)>,
) {
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            flatten(&path.tree, prefix, leaves);
            prefix.pop();
        }
        UseTree::Name(name) if name.ident == "self" => {
            leaves.push((prefix.last().cloned(), prefix.clone()));
        }
        UseTree::Name(name) => {
            let name = name.ident.to_string();
            leaves.push((Some(name.clone()), with(prefix, name)));
        }
        UseTree::Rename(rename) => {
            let path = with(prefix, rename.ident.to_string());
            leaves.push((Some(rename.rename.to_string()), path));
        }
        UseTree::Glob(_) => leaves.push((None, prefix.clone())),
        UseTree::Group(group) => {
            for tree in &group.items {
                flatten(tree, prefix, leaves);
            }
        }
    }
}

fn with(prefix: &ModulePath, name: String) -> ModulePath {
    let mut path = prefix.clone();
    path.push(name);
    path
}
