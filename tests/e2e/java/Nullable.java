package jakarta.annotation;

/** An annotation of Jakarta Annotations that generated clients use. */
public @interface Nullable {}
