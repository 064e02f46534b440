//! Migrations are embedded at compile time, and a new file alone does not make the compiler look again.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
