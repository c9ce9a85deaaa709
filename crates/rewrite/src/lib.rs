//! Graph to graph, same meaning: rules, patches, driver, simplification.
