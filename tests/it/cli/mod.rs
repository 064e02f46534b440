//! The command line as an operator sees it: settings, commands, the running service.

mod commands;
mod records;
mod serve;
mod settings;
