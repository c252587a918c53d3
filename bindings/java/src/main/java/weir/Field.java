package weir;

/**
 * A named JSON scalar.
 *
 * @param name its name
 * @param value its text
 */
public record Field(String name, String value) {}
