//! What the kernel tells about this process.
