package weir;

/**
 * A named JSON scalar.
 *
 * @param name the name
 * @param value the JSON text
 */
public record Field(String name, String value) {}
