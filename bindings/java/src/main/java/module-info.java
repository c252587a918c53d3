/** An event store in the process or at a server, and queries over pages of JSON. */
module weir {
    exports weir;
}
