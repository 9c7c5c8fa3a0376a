//! `files_by_header:` of a route: the folders from which an upstream may have a file sent, and the fields in which it
//! names one.

use super::path::{Name, Unnamed};
use super::{Asked, Found, Site, cause_of, refuse};
use std::sync::Arc;
use std::time::Instant;
use weir_config::schema;
use weir_filter::filter::{Answer, CoreHandle, Refusal};
use weir_h1::{FieldName, Fields, RequestHead};
use weir_upstream::error;

/// The fields and folders of one route.
pub struct ByHeader {
    fields: Vec<(FieldName, Vec<Folder>)>,
}

/// What stands for a folder in the field.
struct Folder {
    prefix: Box<[u8]>,
    site: Arc<Site>,
}

/// A file that an upstream has named.
pub(crate) struct Named {
    /// The folder, if its prefix is known.
    site: Option<Arc<Site>>,
    /// The path below it.
    path: Vec<u8>,
}

impl ByHeader {
    /// The folders that a config names. An error comes with the keys that it concerns.
    pub(crate) fn new(written: &schema::FilesByHeader) -> Result<Self, (String, String, String)> {
        let mut fields = Vec::new();
        for (name, folders) in written.iter() {
            let field = FieldName::new(name).map_err(|_| {
                (name.to_owned(), String::new(), format!("`{name}` is not the name of a header field"))
            })?;
            let mut all = Vec::new();
            for (prefix, root) in folders {
                let site = Site::of_upstream(root.0.clone())
                    .map_err(|refusal| (name.to_owned(), prefix.clone(), refusal))?;
                all.push(Folder { prefix: prefix.as_bytes().into(), site: Arc::new(site) });
            }
            all.sort_by_key(|folder| std::cmp::Reverse(folder.prefix.len()));
            fields.push((field, all));
        }
        Ok(Self { fields })
    }

    /// Field, prefix and folder of each, for `weir explain`.
    pub fn folders(&self) -> impl Iterator<Item = (&str, String, &std::path::Path)> {
        self.fields.iter().flat_map(|(field, folders)| {
            let of = |folder: &Folder| String::from_utf8_lossy(&folder.prefix).into_owned();
            folders.iter().map(move |folder| (field.as_str(), of(folder), folder.site.root()))
        })
    }

    /// Removes the fields from a response. Returns the file that the first of them names.
    pub(crate) fn take(&self, headers: &mut Fields) -> Option<Named> {
        let mut named = None;
        for (field, folders) in &self.fields {
            // nginx decodes the value like a URL and leaves out the query.
            let value =
                headers.get(field).map(|value| value.split(|&b| b == b'?').next().unwrap_or_default());
            if let Some(value) = value.filter(|_| named.is_none()) {
                let folder = folders.iter().find(|folder| value.starts_with(&folder.prefix));
                let begin = folder.map_or(0, |folder| folder.prefix.len());
                let path = value.get(begin..).unwrap_or_default().to_vec();
                named = Some(Named { site: folder.map(|folder| Arc::clone(&folder.site)), path });
            }
            headers.remove(field);
        }
        named
    }

    /// Answers a request with a named file, whatever its method: the upstream has taken the request.
    ///
    /// # Errors
    /// Why the file cannot be sent.
    pub(crate) async fn answer(
        &self,
        named: &Named,
        head: &RequestHead,
        core: &CoreHandle,
    ) -> Result<Answer, Box<Refusal>> {
        let Some(site) = &named.site else { return Err(refuse(&error::FILES_BY_HEADER, Vec::new())) };
        let name = Name::of(&named.path, false).map_err(|unnamed| match unnamed {
            Unnamed::Hidden => refuse(&error::FILES_HIDDEN, Vec::new()),
            Unnamed::Impossible => refuse(&error::FILES_BY_HEADER, Vec::new()),
        })?;
        let asked = Asked { name, codings: Vec::new(), fallback: false, path: Vec::new() };
        match site.look(asked, core, Instant::now()).await {
            Ok(Found::File(content, representation)) => site.deliver(content, &representation, head, core),
            Ok(Found::Folder | Found::Listing(_)) => Err(refuse(&error::FILES_NO_INDEX, Vec::new())),
            Err(lost) => Err(refuse(cause_of(lost), Vec::new())),
        }
    }
}
